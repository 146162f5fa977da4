"""The cost of a mesh before its first call."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from benchmarks.cpu import read_table, tree_of
from tests.mesh.calls.mesh import EchoMesh, echo_mesh

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RSS_BYTES_MAX = 80 * 1000 * 1000
IDLE_SHARE_MAX = 0.0025
SETTLE_S = 1.0
WATCH_S = 5.0
WINDOWS_MAX = 6


def run_time_ns(pid: int) -> int:
    """Return how long the threads of a process ran; finer than the ticks of ``stat``."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def processes(mesh: EchoMesh) -> list[int]:
    """Return the controller with the ingress, and its replicas."""
    pid = mesh.status().controller_pid
    found = [reading.pid for reading in tree_of(read_table(), pid)]
    assert set(found) >= {pid, *(each.pid for each in mesh.replicas())}
    return found


async def test_a_replica_takes_at_most_80_megabytes_before_load() -> None:
    async with echo_mesh(num_replicas=2) as mesh:
        table = read_table()
        sizes = [table[replica.pid].rss_bytes for replica in mesh.replicas()]
    print(f"resident: {[f'{size / 1e6:.1f} MB' for size in sizes]}")
    assert 2 == len(sizes)
    assert max(sizes) <= RSS_BYTES_MAX


async def share_of_a_core(pids: list[int]) -> float:
    """Return what processes used while WATCH_S passed; the time itself is what is measured."""
    before_ns, begun_s = {pid: run_time_ns(pid) for pid in pids}, time.monotonic()
    await asyncio.sleep(WATCH_S)
    used_ns = {pid: run_time_ns(pid) - before_ns[pid] for pid in pids}
    share = sum(used_ns.values()) / 1e9 / (time.monotonic() - begun_s)
    print(f"idle: {share:.3%} of a core; milliseconds {[ns / 1e6 for ns in used_ns.values()]}")
    return share


async def test_an_idle_mesh_uses_less_than_a_quarter_percent_of_a_core() -> None:
    """What the mesh does on its own is in every window; a busy machine only adds to some."""
    async with echo_mesh(num_replicas=2) as mesh:
        pids = processes(mesh)
        await asyncio.sleep(SETTLE_S)
        for _ in range(WINDOWS_MAX):
            share = await share_of_a_core(pids)
            if share < IDLE_SHARE_MAX:
                break
    assert share < IDLE_SHARE_MAX
