"""A full deployment: calls wait in turn as far as its queue reaches, the rest is refused."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
import pytest

from services.echo import echo_pb2
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, echo_mesh

pytestmark = pytest.mark.slow
# Far below what the call before it takes, far above what a busy machine needs.
QUICKLY_S = 1.5


@pytest.mark.parity("G-04")
async def test_a_call_beyond_the_queue_is_refused_at_once_and_the_others_succeed() -> None:
    async with echo_mesh(max_ongoing_requests=1, max_queued_requests=2) as mesh:
        slow = echo_pb2.PerformRequest(payload=b"x", delay_s=4.0)
        quick = echo_pb2.PerformRequest(payload=b"x")
        accepted = [mesh.stub.Perform(slow, timeout=ANSWER_TIMEOUT_S)]
        await mesh.sent(1)
        accepted += [mesh.stub.Perform(quick, timeout=ANSWER_TIMEOUT_S) for _ in range(2)]
        await mesh.parked(2)
        begun_s = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await mesh.stub.Perform(quick, timeout=ANSWER_TIMEOUT_S)
        took_s = time.monotonic() - begun_s
        assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
        assert "2" in (caught.value.details() or "")
        assert "ingress" == dict(caught.value.trailing_metadata() or ())["pyserve-answered-by"]
        assert took_s < QUICKLY_S
        replies = await asyncio.gather(*accepted)
        assert [b"x"] * 3 == [reply.payload for reply in replies]
        await mesh.settled()
        count = await mesh.count()
        assert (3, 3) == (count.started, count.succeeded)


@pytest.mark.parity("G-04")
async def test_without_a_queue_every_call_beyond_the_replicas_is_refused() -> None:
    async with echo_mesh(max_ongoing_requests=1, max_queued_requests=0) as mesh:
        holder = mesh.stub.Perform(echo_pb2.PerformRequest(delay_s=60))
        await mesh.sent(1)
        calls = [
            mesh.stub.Echo(echo_pb2.EchoRequest(), timeout=ANSWER_TIMEOUT_S) for _ in range(20)
        ]
        codes = await asyncio.gather(*(call.code() for call in calls))
        assert {grpc.StatusCode.RESOURCE_EXHAUSTED} == set(codes)
        holder.cancel()
        await mesh.settled()
        # None of the twenty; the holder itself may end before its handler has begun.
        assert (await mesh.count()).started <= 1
