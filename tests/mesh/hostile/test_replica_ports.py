"""The ports of replicas, for those who are no members of the mesh."""

from __future__ import annotations

import socket

import grpc
import pytest

from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, echo_mesh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
# More than a replica holds of those who prove nothing.
_CROWD = 300
_DESCRIBE = echo_pb2.PerformRequest(describe=True)


async def test_a_replica_answers_nobody_without_the_token() -> None:
    async with echo_mesh() as mesh:
        (replica,) = mesh.replicas()
        async with mesh.channel_to(replica) as channel:
            refusals = set()
            for path in ("/services.echo.Echo/Perform", "/services.echo.Echo/None", "/a.B/C"):
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"", timeout=ANSWER_TIMEOUT_S)
                assert grpc.StatusCode.UNAUTHENTICATED is refused.value.code()
                refusals.add(refused.value.details())
            assert 1 == len(refusals), "what is there is not told"

            direct = echo_pb2_grpc.EchoStub(channel)
            reply = await direct.Perform(_DESCRIBE, timeout=ANSWER_TIMEOUT_S, metadata=mesh.proof)
            assert replica.pid == reply.facts.pid


async def test_a_crowd_that_proves_nothing_takes_few_descriptors_of_a_replica() -> None:
    async with echo_mesh() as mesh:
        (replica,) = mesh.replicas()
        host, _, port = replica.address.rpartition(":")
        crowd = [
            socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S)
            for _ in range(_CROWD)
        ]
        try:
            # The server's settings, and then the end: the timeout bounds it.
            while crowd[0].recv(1024):
                pass
            reply = await mesh.stub.Perform(_DESCRIBE, timeout=ANSWER_TIMEOUT_S)
            assert replica.pid == reply.facts.pid
        finally:
            for each in crowd:
                each.close()
