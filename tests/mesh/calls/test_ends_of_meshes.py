"""SIGTERM to a mesh that has calls of every kind in flight."""

from __future__ import annotations

import asyncio
import signal
import time

import grpc
import grpc.aio
import pytest

from services.echo import echo_pb2
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, echo_mesh
from tests.support.leftovers import processes_of, sockets_below
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

GRACE_S = 5.0
END_TIMEOUT_S = 30.0


@pytest.mark.parity("G-08")
async def test_calls_in_flight_finish_within_the_grace_and_the_rest_ends_unavailable() -> None:
    async with echo_mesh(num_replicas=2, graceful_shutdown_timeout_s=GRACE_S) as mesh:
        slow = echo_pb2.PerformRequest(payload=b"x", delay_s=2.0)
        part = echo_pb2.PerformRequest(payload=b"x", delay_s=0.2)
        stub = mesh.stub
        unary = [stub.Perform(slow, timeout=ANSWER_TIMEOUT_S) for _ in range(10)]
        threaded = [stub.PerformSync(slow, timeout=ANSWER_TIMEOUT_S) for _ in range(5)]
        stream = stub.PerformStream(
            echo_pb2.PerformStreamRequest(messages=10, each=part), timeout=ANSWER_TIMEOUT_S
        )
        collecting = stub.Collect(timeout=ANSWER_TIMEOUT_S)
        await collecting.write(part)
        endless = stub.PerformStream(
            echo_pb2.PerformStreamRequest(messages=1_000_000, each=part), timeout=ANSWER_TIMEOUT_S
        )
        await mesh.sent(18)
        told_s = time.monotonic()
        mesh.running.process.send_signal(signal.SIGTERM)
        await eventually(lambda: "draining" in mesh.running.output())
        await collecting.write(part)

        assert [b"x"] * 15 == [each.payload for each in await asyncio.gather(*unary, *threaded)]
        assert 10 == len([reply async for reply in stream])
        await collecting.done_writing()
        assert 2 == (await collecting).messages
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [reply async for reply in endless]
        assert grpc.StatusCode.UNAVAILABLE is caught.value.code()
        # Without a bound it would have gone on for a day; the grace of others is 20 s.
        assert GRACE_S - 0.1 < time.monotonic() - told_s < GRACE_S + 10
        assert 0 == await asyncio.to_thread(mesh.running.process.wait, END_TIMEOUT_S)
        await eventually(lambda: [] == processes_of(mesh.running.session))
        assert [] == sockets_below(mesh.running.home)


async def test_a_call_that_comes_during_the_drain_is_refused_and_not_lost() -> None:
    async with echo_mesh(graceful_shutdown_timeout_s=15.0) as mesh:
        slow = mesh.stub.Perform(echo_pb2.PerformRequest(delay_s=4.0), timeout=ANSWER_TIMEOUT_S)
        await mesh.sent(1)
        mesh.running.process.send_signal(signal.SIGTERM)
        await eventually(lambda: "draining" in mesh.running.output())
        codes = set()
        while not slow.done():
            codes.add(await mesh.stub.Echo(echo_pb2.EchoRequest(), timeout=ANSWER_TIMEOUT_S).code())
            await asyncio.sleep(0.05)
        assert grpc.StatusCode.OK is await slow.code()
        # OK while the ingress still takes calls; UNAVAILABLE from then on, and nothing else.
        assert grpc.StatusCode.UNAVAILABLE in codes
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        assert 0 == await asyncio.to_thread(mesh.running.process.wait, END_TIMEOUT_S)
