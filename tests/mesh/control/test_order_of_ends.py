"""Callers end before those that they call, over real gRPC."""

import asyncio

import pytest

from pyserve.aio.mesh_channel import proof
from pyserve.wire.v1 import control_pb2
from tests.mesh.control.test_services import TIMEOUT_S, TOKEN, Mesh, mesh

__all__ = ["mesh"]


async def deploy_two(mesh: Mesh) -> tuple[asyncio.Event, dict[str, asyncio.Event]]:
    """Bring up a Front that calls a Back; return what Front's end waits for, and who drains."""
    may_end = asyncio.Event()

    async def script(replica):
        await replica.join()
        await replica.ready()
        is_caller = replica.order.key.deployment == "Front"
        await replica.serve_until_drained(may_end if is_caller else None)

    mesh.launcher.script = script
    await mesh.deploy("Back", "Front", calls=[("Front", "Back")])
    return may_end, {item.order.key.deployment: item.drained for item in mesh.launcher.started}


@pytest.mark.parity("G-67")
@pytest.mark.parametrize("how", ["delete", "shutdown"])
async def test_who_is_called_serves_until_its_callers_have_ended(mesh, how):
    may_end, drained = await deploy_two(mesh)
    call = {
        "delete": lambda: mesh.control.Delete(
            control_pb2.DeleteRequest(application="shop"),
            metadata=proof(TOKEN),
            timeout=TIMEOUT_S,
        ),
        "shutdown": lambda: mesh.control.Shutdown(
            control_pb2.ShutdownRequest(grace_s=TIMEOUT_S),
            metadata=proof(TOKEN),
            timeout=TIMEOUT_S,
        ),
    }[how]()
    async with asyncio.timeout(TIMEOUT_S):
        await drained["Front"].wait()

    status = await mesh.status()
    assert ["STOPPING"] == [each.state for each in status["Front"].replicas]
    assert ["RUNNING"] == [each.state for each in status["Back"].replicas]
    assert not drained["Back"].is_set()

    may_end.set()
    async with asyncio.timeout(TIMEOUT_S):
        await drained["Back"].wait()
        await call
