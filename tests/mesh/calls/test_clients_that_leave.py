"""Clients that cancel or vanish: their handlers are cancelled, and no counter keeps them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from services.echo import echo_pb2
from tests.mesh.calls.mesh import EchoMesh, echo_mesh
from tests.mesh.commands import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

EACH = 5
KINDS = 4
CALLS = EACH * KINDS
SLOW = echo_pb2.PerformRequest(delay_s=600)


@contextmanager
def client_process(address: str, each: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a client that holds calls; it is killed in the end if it still lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mesh.calls.client", address, str(each)], cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def all_run(mesh: EchoMesh, calls: int) -> None:
    async def started() -> bool:
        return (await mesh.count()).started == calls

    await eventually(started, 30, f"{calls} calls run")


async def check_all_were_cancelled(mesh: EchoMesh, calls: int) -> None:
    await mesh.settled()
    count = await mesh.count()
    assert (calls, calls) == (count.started, count.cancelled)


async def test_calls_of_every_kind_that_their_client_cancels() -> None:
    async with echo_mesh() as mesh:
        stream = echo_pb2.PerformStreamRequest(messages=1, each=SLOW)
        calls = [
            call
            for _ in range(EACH)
            for call in (
                mesh.stub.Perform(SLOW),
                mesh.stub.PerformStream(stream),
                mesh.stub.Collect(iter([SLOW])),
                mesh.stub.Converse(iter([SLOW])),
            )
        ]
        await all_run(mesh, CALLS)
        assert CALLS <= sum(mesh.router_in_flight().values())
        for call in calls:
            assert call.cancel()
        await check_all_were_cancelled(mesh, CALLS)


async def test_calls_of_every_kind_whose_client_is_killed() -> None:
    async with echo_mesh() as mesh:
        with client_process(mesh.address, EACH) as client:
            await all_run(mesh, CALLS)
            client.kill()
            await check_all_were_cancelled(mesh, CALLS)


async def test_parked_calls_whose_client_is_killed_never_start() -> None:
    async with echo_mesh(max_ongoing_requests=1) as mesh:
        holder = mesh.stub.Perform(SLOW)
        await mesh.sent(1)
        with client_process(mesh.address, EACH) as client:
            await mesh.parked(CALLS)
            client.kill()
            await mesh.parked(0)
        holder.cancel()
        await check_all_were_cancelled(mesh, 1)


async def test_a_cancel_is_seen_while_the_replica_is_busy_with_others() -> None:
    """A storm of cancels at a full replica leaves its places to those who come after it."""
    async with echo_mesh(max_ongoing_requests=4) as mesh:
        calls = [mesh.stub.Perform(SLOW) for _ in range(40)]
        await mesh.parked(36)
        for call in calls:
            call.cancel()
        quick = echo_pb2.PerformRequest(payload=b"x")
        replies = await asyncio.gather(*(mesh.stub.Perform(quick, timeout=30) for _ in range(40)))
        assert [b"x"] * 40 == [reply.payload for reply in replies]
        await mesh.settled()
        count = await mesh.count()
        assert 40 == count.succeeded
        assert count.started == count.succeeded + count.cancelled
