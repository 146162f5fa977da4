"""Concurrent requests share one answer, and there are pauses between answers."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pyserve.admin.rate_limits import RateLimited

TIMEOUT_S = 30.0


class Work:
    """Counts what is made, and lets the test say when it is done."""

    def __init__(self) -> None:
        self.begun = 0
        self.released = asyncio.Event()
        self.arrived = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        self.arrived.set()
        await self.released.wait()
        return self.begun


async def test_all_who_come_meanwhile_share_the_next_one() -> None:
    work = Work()
    rate_limited = RateLimited(work)
    first = asyncio.create_task(rate_limited.get())
    await work.arrived.wait()
    others = [asyncio.create_task(rate_limited.get()) for _ in range(50)]
    await asyncio.sleep(0)
    work.released.set()

    async with asyncio.timeout(TIMEOUT_S):
        assert 1 == await first
        assert {2} == set(await asyncio.gather(*others))


async def test_a_quarter_of_the_time_goes_into_it_at_most() -> None:
    loop = asyncio.get_running_loop()
    took: list[tuple[float, float]] = []

    async def make() -> None:
        begun = loop.time()
        await asyncio.sleep(0.02)
        took.append((begun, loop.time()))

    rate_limited = RateLimited(make)
    for _ in range(3):
        await rate_limited.get()
    for (begun, ended), (next_begun, _) in itertools.pairwise(took):
        assert next_begun - ended >= 2.9 * (ended - begun)


async def test_who_goes_takes_nothing_from_the_others() -> None:
    work = Work()
    rate_limited = RateLimited(work)
    gone, stays = (asyncio.create_task(rate_limited.get()) for _ in range(2))
    await work.arrived.wait()
    gone.cancel()
    work.released.set()

    assert 1 == await stays


async def test_a_failure_is_told_and_the_next_one_is_made() -> None:
    failures = [ValueError("no"), None]

    async def make() -> int:
        if error := failures.pop(0):
            raise error
        return 1

    rate_limited = RateLimited(make)
    with pytest.raises(ValueError, match="no"):
        await rate_limited.get()
    assert 1 == await rate_limited.get()
