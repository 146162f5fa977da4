"""When a status is told: not before routers know what it says."""

import asyncio

import pytest

from pyserve.wire.v1 import mesh_pb2
from tests.mesh.control.test_services import TIMEOUT_S, Mesh


@pytest.fixture
async def mesh(tmp_path):
    mesh = Mesh(tmp_path / "c.sock")
    await mesh.server.start()
    try:
        yield mesh
    finally:
        await mesh.channel.close()
        await mesh.controller.close()
        await mesh.server.stop(0)


async def test_a_status_that_says_so_comes_when_routers_know_only_the_new_one(mesh, monkeypatch):
    """A program that reads HEALTHY, and calls, meets no replica of the version before."""
    await mesh.deploy("Echo")
    (former,) = (each.replica_id for each in (await mesh.status())["Echo"].replicas)
    monkeypatch.setattr("pyserve.control.registry.WATCH_COALESCE_S", 0.15)
    deploy = asyncio.create_task(mesh.deploy("Echo", max_ongoing_requests=3, serializer="json"))

    async with asyncio.timeout(TIMEOUT_S):
        while True:
            echo = (await mesh.status())["Echo"]
            running = {each.replica_id for each in echo.replicas if each.state == "RUNNING"}
            if echo.state == "HEALTHY" and former not in running:
                break
    registry = mesh.controller.registry
    told = registry.take(registry.watch(None, lambda: None))
    (view,) = mesh_pb2.WatchUpdate.FromString(told).changed
    assert running == {each.replica_id for each in view.replicas}
    await deploy


async def test_a_status_does_not_wait_for_routers_that_hang(mesh, monkeypatch):
    await mesh.deploy("Echo")
    monkeypatch.setattr("pyserve.control.server.service._TOLD_WAIT_S", 0.01)
    monkeypatch.setattr(mesh.controller, "visible", lambda _version: asyncio.Event().wait())

    assert "HEALTHY" == (await mesh.status())["Echo"].state
