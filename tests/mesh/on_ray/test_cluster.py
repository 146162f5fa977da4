"""What a cluster does that no single machine can."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pyserve.control.state.mesh import Replica
from tests.mesh.launchers.world import TIMEOUT_S, World
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
# A cluster takes a few seconds to know that a node is lost, and one more to place another actor.
LOST_S = 60.0


def nodes() -> dict[str, dict[str, Any]]:
    """Return the nodes that live, by their ids."""
    import ray

    return {each["NodeID"]: each for each in ray.nodes() if each["Alive"]}


async def served(world: World, count: int = 1) -> list[Replica]:
    await eventually(lambda: count == len(world.serving()), TIMEOUT_S)
    return world.serving()


def message(world: World) -> str:
    (application,) = world.controller.status().applications
    return application.deployments[0].message


async def test_a_replica_lies_where_its_resources_are_and_says_its_zone(
    world: World,
) -> None:
    world.deploy("plain", 1, resources={"num_cpus": 1, "resources": {"lens": 1}})

    (replica,) = await served(world)

    assert "lens" in nodes()[replica.place.node]["Resources"]
    assert "b" == replica.place.zone


async def test_labels_choose_the_node(world: World) -> None:
    label = {"ray.io/availability-zone": "b"}
    world.deploy("plain", 2, ray_actor_options={"label_selector": label, "num_cpus": 1})

    assert ["b", "b"] == [each.place.zone for each in await served(world, 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"resources": {"num_cpus": 64}},
            "no node of the Ray cluster has CPU 64; the most that",
        ),
        (
            {"resources": {"num_gpus": 1}},
            "GPU 1; the most that one has: CPU 2 and GPU 0",
        ),
        (
            {"placement_group_bundles": [{"prism": 1}]},
            "no node of the Ray cluster has prism 1",
        ),
    ],
)
async def test_what_no_node_has_is_refused_with_what_there_is(
    world: World, options: dict[str, Any], said: str
) -> None:
    world.deploy("plain", 1, max_constructor_retry_count=1, **options)

    await eventually(lambda: said in message(world), TIMEOUT_S)


async def test_what_is_taken_is_waited_for_and_told(world: World) -> None:
    world.deploy("plain", 3, resources={"num_cpus": 2})
    await served(world, 3)
    world.deploy("plain", 4, resources={"num_cpus": 2})

    await eventually(lambda: "waits for a node with CPU 2 left" in message(world), TIMEOUT_S)
    world.deploy("plain", 3, resources={"num_cpus": 2})

    await eventually(lambda: "" == message(world), TIMEOUT_S)
    assert 3 == len(world.serving())


async def test_a_node_that_is_lost_is_an_event_and_its_replica_is_replaced(
    world: World, cluster: Any
) -> None:
    """Both nodes with what it needs take one; the other one takes its place."""
    added = [cluster.add_node(num_cpus=1, resources={"prism": 1}) for _ in range(2)]
    cluster.wait_for_nodes()
    world.deploy("plain", 1, resources={"num_cpus": 1, "resources": {"prism": 1}})
    (lost,) = await served(world)
    here = [each for each in added if each.node_id == lost.place.node]
    assert 1 == len(here)

    await asyncio.to_thread(cluster.remove_node, here[0], allow_graceful=False)

    await eventually(lambda: lost.id not in world.controller.state.replicas, LOST_S)
    (replica,) = await served(world)
    assert replica.place.node != lost.place.node
    for each in {*added} - {*here}:
        await asyncio.to_thread(cluster.remove_node, each)


async def test_an_actor_that_dies_is_an_event_and_is_replaced(world: World) -> None:
    import ray

    (replica,) = await world.serve("plain")

    ray.kill(ray.get_actor(replica.id))

    await eventually(lambda: replica.id not in world.controller.state.replicas, TIMEOUT_S)
    assert "was lost: " in world.ended()
    await served(world)


async def test_bundles_are_one_group_that_goes_with_its_replica(world: World) -> None:
    from ray.util import placement_group_table

    bundles = [{"CPU": 1}, {"CPU": 1}]
    world.deploy(
        "plain",
        1,
        placement_group_bundles=bundles,
        placement_group_strategy="STRICT_SPREAD",
    )
    (replica,) = await served(world)
    (group,) = [each for each in placement_group_table().values() if each["name"] == replica.id]
    assert ("CREATED", "STRICT_SPREAD") == (group["state"], group["strategy"])
    assert 2 == len(set(group["bundles_to_node_id"].values()))

    async with asyncio.timeout(TIMEOUT_S):
        await world.controller.delete("shop")

    def state() -> str:
        found: str = placement_group_table()[group["placement_group_id"]]["state"]
        return found

    await eventually(lambda: "REMOVED" == state(), TIMEOUT_S)


async def test_the_environment_is_that_of_ray(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "note.txt").write_text("from the working_dir")
    world.deploy("telling", 1, env_vars={"COLOUR": "blue"}, working_dir=str(folder))

    await served(world)

    await eventually(lambda: "blue, from the working_dir" in "\n".join(world.lines), TIMEOUT_S)


async def test_nothing_is_left_after_the_end(world: World) -> None:
    import ray

    await world.serve("plain", 2)
    names = set(ray.util.list_named_actors())
    assert 2 == len(names)

    async with asyncio.timeout(TIMEOUT_S):
        await world.controller.delete("shop")

    await eventually(lambda: [] == ray.util.list_named_actors(), TIMEOUT_S)
