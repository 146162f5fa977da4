"""A mesh loses the connection to its cluster, or the cluster itself."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from pyserve.launch import notices_of
from pyserve.launch.on_ray.launcher import RayLauncher
from tests.mesh.launchers.world import TIMEOUT_S, Engine, World, is_gone, kill, standing
from tests.support.ray_cluster import ray_cluster
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# Far below the minute after which Ray itself gives a head up.
PROMPTLY_S = 10.0


def told(world: World) -> str:
    """Return what `pyserve status` says of the cluster."""
    return "; ".join(notices_of(world.launcher))


def message(world: World) -> str:
    (application,) = world.controller.status().applications
    return application.deployments[0].message


def agent(world: World) -> int:
    """Return the id of the process that is connected with the cluster."""
    assert isinstance(world.launcher, RayLauncher)
    assert world.launcher._link is not None
    return world.launcher._link._process.pid


async def test_a_lost_head_is_told_and_replicas_start_again_when_a_cluster_is_there(
    cluster: Any,
) -> None:
    """The controller lives on: it is another process that Ray ends with its node."""
    del cluster  # Another one; this says that `make ray` runs it.
    with ray_cluster() as first:
        address, port = first.address, int(first.address.rpartition(":")[2])
        async with standing(Engine("ray", options={"address": address})) as world:
            (replica,) = await world.serve("plain")
            assert "" == told(world)

            await asyncio.to_thread(first.remove_node, first.head_node, allow_graceful=False)

            await eventually(lambda: f"the Ray cluster at {address!r} is lost" in told(world), 10)
            await eventually(lambda: is_gone(replica.pid), TIMEOUT_S)
            said = f"1 more wait for their turn: the Ray cluster at {address!r} is lost"
            await eventually(lambda: said in message(world), TIMEOUT_S)
            assert "was lost with the Ray cluster" in world.ended()
            with ray_cluster(port=port):
                await eventually(lambda: 1 == len(world.serving()), 2 * TIMEOUT_S)
                assert "" == told(world)
                assert "" == message(world)
                assert replica.id != world.serving()[0].id


async def test_a_mesh_ends_without_its_cluster(cluster: Any) -> None:
    del cluster  # As above.
    with ray_cluster() as first:
        async with standing(Engine("ray", options={"address": first.address})) as world:
            await world.serve("plain")
            connected = agent(world)
            await asyncio.to_thread(first.remove_node, first.head_node, allow_graceful=False)
            await eventually(lambda: told(world), PROMPTLY_S)

            async with asyncio.timeout(PROMPTLY_S):
                await world.controller.close()

            assert is_gone(connected)


async def test_detached_replicas_serve_on_without_the_process_that_is_connected(
    cluster: Any,
) -> None:
    engine = Engine("ray", is_lasting=True, options={"address": cluster.address})
    async with standing(engine) as world:
        (replica,) = await world.serve("plain")
        former = agent(world)

        os.kill(former, signal.SIGKILL)

        await eventually(lambda: told(world), PROMPTLY_S)
        await eventually(lambda: "" == told(world), TIMEOUT_S)
        assert former != agent(world)
        assert [replica] == world.serving()
        kill(replica)
        await eventually(lambda: "SIGKILL" in world.ended(), PROMPTLY_S)
        await eventually(lambda: 1 == len(world.serving()), TIMEOUT_S)
