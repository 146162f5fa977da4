"""Ten thousand calls at once, a tenth cancelled at random, beside a slow reader of a stream."""

from __future__ import annotations

import asyncio
import random

import psutil
import pytest

import pyserve
from pyserve.api.context import attached
from pyserve.bridge import running_endpoint
from pyserve.driver.session import Session
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

CALLS = 10_000
SEED = 20261121
KIB = 1024


async def test_a_storm_leaves_nothing_behind(
    session: Session, worker: pyserve.DeploymentHandle, several: pyserve.DeploymentHandle
) -> None:
    """Every call ends once, nothing runs on, and no value stays held."""
    chance = random.Random(SEED)
    rss_before = psutil.Process().memory_info().rss

    async def call(number: int) -> str:
        kind = number % 10
        if kind == 0:  # Large values from one replica to another.
            response = several.size_of.remote(worker.blob.remote(80 * KIB))
        elif kind == 1:
            response = worker.sleep.remote(chance.random() / 10)
        else:
            response = worker.remote(number)
        doomed = chance.random() < 0.1
        if doomed:
            cancel_after_s = chance.random() / 20
            asyncio.get_running_loop().call_later(cancel_after_s, response.cancel)
        try:
            answer = await response
        except pyserve.RequestCancelled:
            assert doomed
            return "cancelled"
        if kind > 1:
            assert number == answer
        return "answered"

    slow = asyncio.create_task(_read_slowly(worker))
    ends = await asyncio.gather(*(call(number) for number in range(CALLS)))
    assert CALLS == len(ends)
    assert 0 < ends.count("cancelled") <= CALLS / 5
    assert await slow == 400

    async def settled() -> bool:
        held = await worker.held.remote()
        return bool((await worker.counts.remote())["running"] == 0 == held)

    await eventually(settled, 30, "nothing runs and nothing is held")
    await eventually(lambda: 0 == attached().references.held_count)
    await eventually(lambda: not running_endpoint().receivers, what="no call is left on the loop")
    assert psutil.Process().memory_info().rss - rss_before < 200 * KIB * KIB
    running = session._router._running
    assert running is not None
    table = running.table

    def calls_left() -> dict[str, tuple[object, object]]:
        counts = {
            name: (stats["in_flight_total"], stats["parked"])
            for name, stats in table.stats().items()
        }
        return {name: each for name, each in counts.items() if any(each)}

    await eventually(lambda: {} == calls_left(), what="the router has no call left")


async def _read_slowly(worker: pyserve.DeploymentHandle) -> int:
    """Read ten times more slowly than the producer could make it."""
    stream = worker.count_up.options(stream=True, _by_reference=False).remote(400, 4 * KIB)
    count = 0
    async for _ in stream:
        count += 1
        await asyncio.sleep(0.002)
    return count
