"""Clients that stop reading their streams: their neighbours keep their pace, memory stays flat.

MESH_STALL_S=30 holds them for as long as the requirement says, and measures the neighbours all
that time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from benchmarks.cpu import read_table
from services.echo import echo_pb2
from tests.mesh.calls.mesh import EchoMesh, echo_mesh
from tests.mesh.calls.raw import RawClient, frame, raw_client
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

READERS = 4
STALL_S = float(os.environ.get("MESH_STALL_S", "3"))
# What HTTP/2 lets a server send to who gives no window back.
INITIAL_WINDOW_BYTES = 65_535
RATIO_MAX = 1.5
# A machine that does other things too makes single windows worthless: pairs are added until
# their median is good; that of a slow neighbour stays bad.
ROUNDS_MIN, ROUNDS_MAX = 5, 25
CALLS_A_WINDOW = 300
# Allocators keep some; the streams offer a GiB each.
GROWTH_BYTES_MAX = 4 * 1024 * 1024
STALL_BYTES_MAX = 32 * 1024 * 1024

ECHO = frame(echo_pb2.EchoRequest(payload=b"x" * 100).SerializeToString())
STREAM = frame(
    echo_pb2.PerformStreamRequest(
        messages=4096, each=echo_pb2.PerformRequest(response_bytes=256 * 1024)
    ).SerializeToString()
)


@asynccontextmanager
async def stalled_readers(mesh: EchoMesh) -> AsyncIterator[None]:
    """Open streams whose clients read nothing, and wait until as much came as can come."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(READERS):
            reader = await stack.enter_async_context(raw_client(mesh.address, reads=False))
            reader.start("/services.echo.Echo/PerformStream", STREAM)
            readers.append(reader)
        await eventually(
            lambda: all(reader.received_bytes >= INITIAL_WINDOW_BYTES for reader in readers)
        )
        yield
        # Headers and frames around it are a few hundred bytes.
        assert all(reader.received_bytes < 2 * INITIAL_WINDOW_BYTES for reader in readers)


async def p99_s(client: RawClient) -> float:
    """Return the 99th percentile of unary calls, one after the other."""
    took_s = []
    for _ in range(CALLS_A_WINDOW):
        call = await client.start("/services.echo.Echo/Echo", ECHO).end()
        assert 0 == call.status
        took_s.append(call.ended_s - call.begun_s)
    return statistics.quantiles(took_s, n=100)[-1]


def rss_bytes(mesh: EchoMesh) -> dict[str, int]:
    table = read_table()
    found = {replica.replica_id: table[replica.pid].rss_bytes for replica in mesh.replicas()}
    return found | {"ingress": table[mesh.status().controller_pid].rss_bytes}


@pytest.mark.alone
async def test_neighbours_of_stalled_readers_keep_their_pace() -> None:
    async with echo_mesh() as mesh, raw_client(mesh.address) as client:
        await p99_s(client)  # warms up
        ratios: list[float] = []
        while len(ratios) < ROUNDS_MAX:
            before_s = await p99_s(client)
            async with stalled_readers(mesh):
                ratios.append(await p99_s(client) / before_s)
            if len(ratios) >= ROUNDS_MIN and statistics.median(ratios) <= RATIO_MAX:
                break
        print(f"p99 beside stalled readers: {statistics.median(ratios):.2f} × of {len(ratios)}")
        assert statistics.median(ratios) <= RATIO_MAX, ratios
        await mesh.settled()
        count = await mesh.count()
        assert READERS * len(ratios) == count.cancelled


async def test_stalled_readers_take_no_memory_while_they_stall() -> None:
    async with echo_mesh() as mesh, raw_client(mesh.address) as client:
        before_s = [await p99_s(client) for _ in range(ROUNDS_MIN)]
        empty = rss_bytes(mesh)
        async with stalled_readers(mesh):
            await p99_s(client)
            during_s, begun = [], rss_bytes(mesh)
            end_s = time.monotonic() + STALL_S
            while time.monotonic() < end_s:
                during_s.append(await p99_s(client))
            ended = rss_bytes(mesh)
        growth = {name: ended[name] - begun[name] for name in begun}
        taken = {name: ended[name] - empty[name] for name in begun}
        ratio = statistics.median(during_s) / statistics.median(before_s)
        print(f"{STALL_S:g} s: growth {growth}, taken {taken} bytes; p99 {ratio:.2f} × of before")
        assert max(growth.values()) <= GROWTH_BYTES_MAX
        assert max(taken.values()) <= STALL_BYTES_MAX
        if STALL_S >= 30:
            assert ratio <= RATIO_MAX
        await mesh.settled()
