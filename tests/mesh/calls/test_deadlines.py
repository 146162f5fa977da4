"""Deadlines as the mesh keeps them: the client of these tests has no timer of its own.

Each situation is measured with 100 calls: the median is answered within 20 ms of the deadline,
none later than 250 ms.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Sequence

import grpc
import pytest

from services.echo import echo_pb2
from tests.mesh.calls.mesh import echo_mesh
from tests.mesh.calls.raw import RawCall, RawClient, frame, raw_client
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

CALLS = 100
LATENESS_S_MEDIAN_MAX = 0.020
LATENESS_S_MAX = 0.250
PERFORM = "/services.echo.Echo/Perform"
PERFORM_SYNC = "/services.echo.Echo/PerformSync"
PERFORM_STREAM = "/services.echo.Echo/PerformStream"
DEADLINE_EXCEEDED = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
# Apart from each other, so that the client's own work is not what is measured; all below the
# 500 ms after which a router asks a silent replica whether it lives.
TIMEOUTS_MS = range(200, 200 + 2 * CALLS, 2)


def lasting(delay_s: float) -> bytes:
    """Return the frame of a request whose answer takes so long."""
    return frame(echo_pb2.PerformRequest(delay_s=delay_s).SerializeToString())


def start(client: RawClient, path: str, message: bytes) -> list[tuple[RawCall, float]]:
    """Start the calls; return each with its time-out in seconds."""
    calls = []
    for timeout_ms in TIMEOUTS_MS:
        headers = [("grpc-timeout", f"{timeout_ms}m")]
        calls.append((client.start(path, message, headers=headers), timeout_ms / 1000))
    return calls


async def check_all_are_answered_in_time(calls: Sequence[tuple[RawCall, float]]) -> None:
    """Each ends DEADLINE_EXCEEDED, neither early nor late."""
    for call, _ in calls:
        await call.end()
    assert {DEADLINE_EXCEEDED} == {call.status for call, _ in calls}
    lateness_s = sorted(call.ended_s - call.begun_s - timeout_s for call, timeout_s in calls)
    print(f"lateness: median {statistics.median(lateness_s):.4f} s, most {lateness_s[-1]:.4f} s")
    assert lateness_s[0] >= 0
    assert statistics.median(lateness_s) <= LATENESS_S_MEDIAN_MAX
    assert lateness_s[-1] <= LATENESS_S_MAX


async def test_calls_that_are_parked() -> None:
    async with echo_mesh(max_ongoing_requests=1) as mesh, raw_client(mesh.address) as client:
        holder = mesh.stub.Perform(echo_pb2.PerformRequest(delay_s=60))
        await mesh.sent(1)
        calls = start(client, PERFORM, lasting(60))
        await eventually(lambda: mesh.status().ingress.parked > 0)
        await check_all_are_answered_in_time(calls)
        assert {"ingress"} == {call.headers["pyserve-answered-by"] for call, _ in calls}
        holder.cancel()
        await mesh.settled()
        assert 1 == (await mesh.count()).started


async def test_calls_in_transit_to_a_replica_that_has_stopped() -> None:
    async with echo_mesh(max_ongoing_requests=CALLS) as mesh, raw_client(mesh.address) as client:
        await mesh.count()  # opens the connection
        (replica,) = mesh.replicas()
        os.kill(replica.pid, signal.SIGSTOP)
        try:
            calls = start(client, PERFORM, lasting(60))
            await check_all_are_answered_in_time(calls)
        finally:
            os.kill(replica.pid, signal.SIGCONT)
        assert {"ingress"} == {call.headers["pyserve-answered-by"] for call, _ in calls}
        await mesh.settled()
        assert [replica] == mesh.replicas()


@pytest.mark.parametrize("path", [PERFORM, PERFORM_STREAM])
async def test_calls_in_tasks_which_are_cancelled(path: str) -> None:
    if path == PERFORM:
        message = lasting(60)
    else:
        each = echo_pb2.PerformRequest(delay_s=60)
        request = echo_pb2.PerformStreamRequest(messages=1, each=each)
        message = frame(request.SerializeToString())
    async with echo_mesh(max_ongoing_requests=CALLS) as mesh, raw_client(mesh.address) as client:
        calls = start(client, path, message)
        await check_all_are_answered_in_time(calls)
        await mesh.settled()
        count = await mesh.count()
        assert (CALLS, CALLS) == (count.started, count.cancelled)


async def test_calls_in_threads_which_run_on() -> None:
    """A handler that still waits for a thread never starts."""
    async with echo_mesh(max_ongoing_requests=CALLS) as mesh, raw_client(mesh.address) as client:
        calls = start(client, PERFORM_SYNC, lasting(1.0))
        await check_all_are_answered_in_time(calls)
        await mesh.settled()
        count = await mesh.count()
        assert 0 < count.started < CALLS
        assert count.started == count.succeeded


async def test_a_handler_in_a_thread_keeps_its_slot_until_it_returns() -> None:
    async with echo_mesh(max_ongoing_requests=1) as mesh, raw_client(mesh.address) as client:
        begun_s = time.monotonic()
        headers = [("grpc-timeout", "100m")]
        late = await client.start(PERFORM_SYNC, lasting(1.0), headers=headers).end()
        assert DEADLINE_EXCEEDED == late.status
        assert late.ended_s - begun_s < 0.1 + LATENESS_S_MAX
        await mesh.sent(0)
        # The router believes the place free; the gate knows that it is not.
        count = await mesh.count()
        assert time.monotonic() - begun_s >= 1.0
        assert (1, 1) == (count.started, count.succeeded)


async def test_calls_without_a_deadline_get_the_deployments() -> None:
    async with (
        echo_mesh(request_timeout_s=0.3, max_ongoing_requests=CALLS) as mesh,
        raw_client(mesh.address) as client,
    ):
        calls = [(client.start(PERFORM, lasting(60)), 0.3) for _ in range(CALLS)]
        await check_all_are_answered_in_time(calls)
        await mesh.settled()
        assert CALLS == (await mesh.count()).cancelled
