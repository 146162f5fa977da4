"""Features of a cluster that no single machine has."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from pyserve.control.state.mesh import Replica
from pyserve.launch.on_ray.launcher import RayLauncher
from tests.mesh.launchers.world import TIMEOUT_S, Engine, World, kill, standing
from tests.support.ray_cluster import add_node
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# A cluster takes a few seconds to know that a node is lost, and one more to place another actor.
LOST_S = 60.0


def nodes() -> dict[str, dict[str, Any]]:
    """Return the nodes that live, by their ids."""
    import ray

    return {each["NodeID"]: each for each in ray.nodes() if each["Alive"]}


def actor(world: World, name: str) -> Any:
    """Return the actor of a replica."""
    import ray

    return ray.get_actor(name, namespace=namespace(world))


def actors(world: World) -> list[str]:
    """Return the names of the actors of a mesh."""
    import ray

    found = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in found if each["namespace"] == namespace(world)]


def namespace(world: World) -> str:
    """Return that of a mesh in Ray."""
    assert isinstance(world.launcher, RayLauncher)
    return world.launcher.namespace


def groups(world: World) -> dict[str, dict[str, Any]]:
    """Return the placement groups of a mesh that are there or are wanted, by their names."""
    from ray.util import placement_group_table

    mine = f"{namespace(world)}/"
    return {
        each["name"].removeprefix(mine): each
        for each in placement_group_table().values()
        if each["name"].startswith(mine) and each["state"] != "REMOVED"
    }


async def served(world: World, count: int = 1) -> list[Replica]:
    await eventually(lambda: count == len(world.serving()), TIMEOUT_S)
    return world.serving()


def message(world: World) -> str:
    (application,) = world.controller.status().applications
    return application.deployments[0].message


@pytest.mark.parity("G-11")
async def test_a_replica_lies_where_its_resources_are_and_says_its_zone(
    world: World,
) -> None:
    world.deploy("plain", 1, resources={"num_cpus": 1, "resources": {"lens": 1}})

    (replica,) = await served(world)

    assert "lens" in nodes()[replica.place.node]["Resources"]
    assert "b" == replica.place.zone


@pytest.mark.parity("G-11")
async def test_labels_choose_the_node(world: World) -> None:
    label = {"ray.io/availability-zone": "b"}
    world.deploy("plain", 2, ray_actor_options={"label_selector": label, "num_cpus": 1})

    assert ["b", "b"] == [each.place.zone for each in await served(world, 2)]


@pytest.mark.parity("G-11")
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
    added = [add_node(cluster, num_cpus=1, resources={"prism": 1}) for _ in range(2)]
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

    ray.kill(actor(world, replica.id))

    await eventually(lambda: replica.id not in world.controller.state.replicas, TIMEOUT_S)
    assert "was lost: " in world.ended()
    await served(world)


@pytest.mark.parity("G-12")
async def test_bundles_are_one_group_that_goes_with_its_replica(world: World) -> None:
    bundles = [{"CPU": 1}, {"CPU": 1}]
    world.deploy(
        "plain",
        1,
        placement_group_bundles=bundles,
        placement_group_strategy="STRICT_SPREAD",
    )
    (replica,) = await served(world)
    assert {replica.id} == groups(world).keys()
    group = groups(world)[replica.id]
    assert ("CREATED", "STRICT_SPREAD") == (group["state"], group["strategy"])
    assert 2 == len(set(group["bundles_to_node_id"].values()))

    async with asyncio.timeout(TIMEOUT_S):
        await world.controller.delete("shop")

    await eventually(lambda: not groups(world), TIMEOUT_S)


@pytest.mark.parity("G-68")
async def test_the_environment_is_that_of_ray(world: World, tmp_path: Path) -> None:
    """Of the folder a copy is uploaded, as it is at each start."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "note.txt").write_text("from the working_dir")
    world.deploy("telling", 1, env_vars={"COLOUR": "blue"}, working_dir=str(folder))

    (replica,) = await served(world)

    await eventually(lambda: "blue, from the working_dir" in "\n".join(world.lines), TIMEOUT_S)
    assert str(folder) != psutil.Process(replica.pid).cwd()
    (folder / "note.txt").write_text("from another one")
    kill(replica)
    await eventually(lambda: "blue, from another one" in "\n".join(world.lines), TIMEOUT_S)


async def test_a_folder_that_is_not_there_is_named(world: World, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    world.deploy("plain", 1, working_dir=gone, max_constructor_retry_count=1)

    await eventually(lambda: gone in message(world), TIMEOUT_S)
    assert "must be an existing directory" in message(world)


async def test_nothing_is_left_after_the_end(world: World) -> None:
    replicas = await world.serve("plain", 2)
    assert {each.id for each in replicas} == set(actors(world))

    async with asyncio.timeout(TIMEOUT_S):
        await world.controller.delete("shop")

    await eventually(lambda: not actors(world), TIMEOUT_S)


@pytest.mark.parity("G-14")
async def test_a_gang_is_placed_together_or_not_at_all(world: World) -> None:
    """There are six processors, and each gang wants four."""
    gangs = {"gang_size": 2}
    world.deploy("plain", 4, ray_actor_options={"num_cpus": 2}, gang_scheduling_config=gangs)

    first, second = await served(world, 2)
    assert first.gang == second.gang
    said = "2 replicas wait for room for the bundles of its gang, CPU 2, CPU 2"
    await eventually(lambda: said in message(world), TIMEOUT_S)
    # Two are free, which nobody of the second gang has taken.
    created = {name: each["state"] for name, each in groups(world).items()}
    assert "CREATED" == created.pop(first.gang)
    assert ["PENDING"] == list(created.values())

    async with asyncio.timeout(TIMEOUT_S):
        await world.controller.delete("shop")
    await eventually(lambda: not groups(world), TIMEOUT_S)


@pytest.mark.parity("G-14")
async def test_a_gang_is_spread_where_that_is_asked_for(world: World) -> None:
    gangs = {"gang_size": 3, "gang_placement_strategy": "SPREAD"}
    world.deploy("plain", 3, gang_scheduling_config=gangs)

    assert 3 == len({each.place.node for each in await served(world, 3)})


@pytest.mark.parity("G-13")
async def test_no_more_replicas_lie_on_a_node_than_may(world: World) -> None:
    """Three nodes; the fourth replica waits, and an update counts for itself."""
    world.deploy("plain", 4, max_replicas_per_node=1, resources={"num_cpus": 0.5})

    replicas = await served(world, 3)
    assert 3 == len({each.place.node for each in replicas})
    said = "waits for a node with CPU 0.5 left and fewer than 1 of its deployment"
    await eventually(lambda: said in message(world), TIMEOUT_S)

    world.deploy("plain", 3, max_replicas_per_node=1, resources={"num_cpus": 0.25})
    before = {each.id for each in replicas}
    await eventually(lambda: before.isdisjoint(each.id for each in world.serving()), TIMEOUT_S)
    await eventually(lambda: 3 == len(world.serving()), TIMEOUT_S)


@pytest.mark.parity("G-32")
async def test_replicas_that_are_packed_use_few_nodes_and_free_them(cluster: Any) -> None:
    options = {"address": cluster.address, "pack": "true"}
    async with standing(Engine("ray", options=options)) as world:
        for count, used in ((2, 1), (3, 2), (6, 3), (4, 2), (2, 1)):
            world.deploy("plain", count, resources={"num_cpus": 1})
            found = {each.place.node for each in await served(world, count)}
            assert used == len(found), count
            # What an actor held is free some time after its end.
            await eventually(partial(holds, count), TIMEOUT_S)


def holds(cpus: int) -> bool:
    """Say whether so many processors of the cluster are taken."""
    import ray

    whole, free = ray.cluster_resources()["CPU"], ray.available_resources().get("CPU", 0.0)
    return bool(cpus == whole - free)
