"""A port is whose process binds it, and when a replica has died that may be anybody's."""

from __future__ import annotations

import asyncio
import os
import signal

import grpc
import pytest

from services.echo import echo_pb2
from tests.mesh.calls.mesh import RESTART_TIMEOUT_S, EchoMesh, echo_mesh
from tests.mesh.hostile.impostor import Impostor, id_at
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ATTEMPTS = 6
CALLERS = 4
# A replica that keeps dying starts again later each time, 32 s after the fifth.
PATIENCE_S = 2 * RESTART_TIMEOUT_S


async def test_whoever_takes_the_port_of_a_dead_replica_gets_no_call() -> None:
    """Its Unix socket answers nobody then, so routers go by TCP until they hear of its death."""
    async with echo_mesh() as mesh:
        for _ in range(ATTEMPTS):
            await eventually(lambda: _is_answered(mesh), PATIENCE_S, "a replica serves")
            await eventually(lambda: len(mesh.replicas()) == 1, PATIENCE_S)
            (replica,) = mesh.replicas()
            port = int(replica.address.rpartition(":")[2])
            impostor = Impostor(id_at(port))
            with impostor.waiting(port):
                os.kill(replica.pid, signal.SIGKILL)
                while replica in mesh.replicas():
                    await asyncio.gather(*(_is_answered(mesh) for _ in range(CALLERS)))
            assert [] == impostor.calls
            if impostor.greeted.is_set():
                break
        else:
            pytest.skip("the controller was faster than any router each time, so nothing is shown")
        await eventually(lambda: _is_answered(mesh), PATIENCE_S, "the next one serves")


async def _is_answered(mesh: EchoMesh) -> bool:
    try:
        await mesh.stub.Echo(echo_pb2.EchoRequest(payload=b"secret"), timeout=1.0)
    except grpc.aio.AioRpcError:
        return False
    return True
