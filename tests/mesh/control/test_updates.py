"""Updates over real gRPC: how many processes there are at a time, and what stays when one fails."""

import pytest

from tests.mesh.control.fakes import raise_in_constructor, serve
from tests.mesh.control.test_services import TIMEOUT_S, Mesh, mesh
from tests.support.waiting import eventually

__all__ = ["mesh"]


class Fleet:
    """The processes that there are, and the most that there have been."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.alive_max = 0

    async def serve(self, replica):
        name = replica.order.replica_id
        self.alive.add(name)
        self.alive_max = max(self.alive_max, len(self.alive))
        await replica.join()
        await replica.ready()
        await replica.serve_until_drained()
        self.alive.discard(name)


def versions(mesh: Mesh) -> dict[str, str]:
    """Return what each replica runs, by its name."""
    return {item.order.replica_id: item.assign.deployment_version for item in mesh.launcher.started}


async def running(mesh: Mesh) -> set[str]:
    replicas = (await mesh.status())["Echo"].replicas
    return {item.replica_id for item in replicas if item.state == "RUNNING"}


@pytest.mark.parity("G-17")
async def test_surge_bounds_how_many_processes_an_update_has(mesh):
    fleet = Fleet()
    mesh.launcher.script = fleet.serve
    await mesh.deploy("Echo", num_replicas=4)

    events = await mesh.deploy("Echo", num_replicas=4, max_surge_percent=25)

    assert "deployed" == events[-1].WhichOneof("kind")
    assert 5 == fleet.alive_max
    assert 8 == len(mesh.launcher.started)


@pytest.mark.parity("G-18")
async def test_an_update_that_fails_half_way_leaves_as_many_of_the_version_before(mesh):
    await mesh.deploy("Echo", num_replicas=4)
    (before,) = set(versions(mesh).values())
    survivors = await running(mesh)

    async def serve_at_first(replica):
        # Two of the new version, and none after them.
        is_among_first = mesh.launcher.started.index(replica) < 6
        await (serve if is_among_first else raise_in_constructor)(replica)

    mesh.launcher.script = serve_at_first
    events = await mesh.deploy("Echo", num_replicas=4, max_constructor_retry_count=3)
    assert "ValueError: no model" == events[-1].failed.summary

    # Those of the version before that start again now come up.
    mesh.launcher.script = serve

    async def is_whole() -> bool:
        found = await running(mesh)
        return len(found) == 4 and {versions(mesh)[each] for each in found} == {before}

    await eventually(is_whole, TIMEOUT_S)
    assert survivors & await running(mesh)
    echo = (await mesh.status())["Echo"]
    assert "HEALTHY" == echo.state
    assert "the last deploy failed, the version before serves on" in echo.message
