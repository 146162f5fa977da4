"""Streamed answers in a real mesh."""

from __future__ import annotations

import asyncio
import gc

import pytest

import pyserve
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def counting(worker: pyserve.DeploymentHandle) -> pyserve.DeploymentHandle:
    return worker.count_up.options(stream=True)


async def _closed(worker: pyserve.DeploymentHandle, count: int) -> None:
    async def reached() -> bool:
        return bool(count == (await worker.counts.remote())["closed"])

    await eventually(reached, what=f"{count} generators are closed")


@pytest.mark.parity("S-38")
async def test_a_stream_is_iterated_on_a_loop(counting: pyserve.DeploymentHandle) -> None:
    assert list(range(300)) == [item async for item in counting.remote(300)]


@pytest.mark.parity("S-38")
def test_a_stream_is_iterated_in_a_script(
    worker: pyserve.DeploymentHandle, counting: pyserve.DeploymentHandle
) -> None:
    assert list(range(300)) == list(counting.remote(300))
    assert [0, 1, 2] == list(worker.count_in_thread.options(stream=True).remote(3))


@pytest.mark.parity("S-38")
async def test_the_first_item_comes_before_the_generator_ends(
    worker: pyserve.DeploymentHandle,
) -> None:
    stream = worker.stall.options(stream=True).remote()
    assert 1 == await anext(stream)

    async def waits() -> bool:
        return bool(1 == (await worker.counts.remote())["running"])

    await eventually(waits)
    await worker.open.remote()
    assert [2] == [item async for item in stream]


@pytest.mark.parity("S-38")
async def test_cancelling_a_stream_closes_the_generator(
    worker: pyserve.DeploymentHandle, counting: pyserve.DeploymentHandle
) -> None:
    before = (await worker.counts.remote())["closed"]
    stream = counting.remote(10**9)
    assert 0 == await anext(stream)
    stream.cancel()
    with pytest.raises(pyserve.RequestCancelled):
        await anext(stream)
    await _closed(worker, before + 1)


async def test_dropping_a_stream_closes_the_generator(
    worker: pyserve.DeploymentHandle, counting: pyserve.DeploymentHandle
) -> None:
    before = (await worker.counts.remote())["closed"]
    stream = counting.remote(10**9)
    assert 0 == await anext(stream)
    del stream
    gc.collect()
    await _closed(worker, before + 1)


async def test_a_producer_waits_for_a_slow_consumer(
    worker: pyserve.DeploymentHandle, counting: pyserve.DeploymentHandle
) -> None:
    """64 KiB wait at each side and in between, not ten thousand kilobytes."""
    stream = counting.options(_by_reference=False).remote(10_000, 1_000)
    await anext(stream)
    await asyncio.sleep(0.2)  # So much time to run ahead.
    assert (await worker.counts.remote())["produced"] < 2_000
    assert 9_999 == len([item async for item in stream])


async def test_a_stream_goes_on_in_another_loop(counting: pyserve.DeploymentHandle) -> None:
    stream = counting.remote(10)
    assert 0 == await anext(stream)

    async def rest() -> list[int]:
        return [item async for item in stream]

    assert list(range(1, 10)) == await asyncio.to_thread(lambda: asyncio.run(rest()))


async def test_an_exception_comes_after_the_items_before_it(
    worker: pyserve.DeploymentHandle,
) -> None:
    stream = worker.breaks.options(stream=True).remote()
    assert 1 == await anext(stream)
    with pytest.raises(ValueError, match="broken"):
        await anext(stream)
