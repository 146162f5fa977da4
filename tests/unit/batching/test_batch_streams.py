"""Batches of async generators: one list of results a step, one stream for each caller."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pyserve
from pyserve.batching.streams import BUFFER_MAX
from pyserve.errors import BatchError, OptionError
from tests.unit.batching.test_batch_queue import now, virtual


class Counter:
    """Counts up to each caller's limit, one number a second."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.steps = 0
        self.closed_at: float | None = None

    @pyserve.batch(max_batch_size=3, batch_wait_timeout_s=0.0)
    async def count(self, limits: list[int]) -> Any:
        self.batches.append(limits)
        try:
            for number in range(max(limits)):
                yield [number if number < limit else StopIteration for limit in limits]
                self.steps += 1
                await asyncio.sleep(1)
        finally:
            self.closed_at = now()


async def read(stream: Any) -> Any:
    return [result async for result in stream]


@virtual
async def test_each_caller_reads_its_own_results_until_its_own_end():
    counter = Counter()
    assert [[0], [0, 1, 2], [0, 1]] == await asyncio.gather(
        *(read(counter.count(limit)) for limit in (1, 3, 2))
    )
    assert [[1, 3, 2]] == counter.batches


@virtual
async def test_a_call_joins_its_batch_before_anybody_reads():
    counter = Counter()
    first, second = counter.count(2), counter.count(3)

    assert [0, 1, 2] == await read(second)
    assert [0, 1] == await read(first)
    assert [[2, 3]] == counter.batches


@virtual
async def test_a_call_that_nobody_reads_leaves_its_batch():
    """Else the generator would go on for it, until its own end after five seconds."""
    counter = Counter()
    begun = now()
    dropped, kept = counter.count(5), counter.count(1)
    del dropped
    gc.collect()

    assert [0] == await read(kept)
    await asyncio.sleep(3)
    assert begun + 1 == counter.closed_at


@virtual
async def test_a_call_of_a_thread_joins_when_a_loop_reads_it():
    counter = Counter()
    # Not by asyncio, whose virtual time does not wait for threads.
    with ThreadPoolExecutor(1) as threads:
        stream = threads.submit(counter.count, 2).result()
    assert [] == counter.batches
    assert [0, 1] == await read(stream)


@virtual
async def test_a_call_that_does_not_fit_fails_at_once():
    with pytest.raises(TypeError, match="each call passes single values"):
        Counter().count(1, 2)


@pytest.mark.parametrize(
    "end", [StopIteration, StopAsyncIteration, StopIteration(), StopAsyncIteration("over")]
)
def test_a_class_or_an_instance_ends_a_stream(end: object):
    @virtual
    async def check() -> None:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
        async def function(items: list[int]) -> Any:
            yield items
            yield [end, items[1]]
            yield [99, items[1]]

        assert [[7], [8, 8, 8]] == await asyncio.gather(read(function(7)), read(function(8)))

    check()


@virtual
async def test_an_exception_comes_once_and_the_stream_is_over_after_it():
    """As of any generator: who catches it at a step does not loop for ever."""

    @pyserve.batch(max_batch_size=3, batch_wait_timeout_s=0.0)
    async def function(items: list[int]) -> Any:
        yield items
        yield [items[0], ValueError("mine"), StopIteration]
        raise KeyError("all")

    streams: list[Any] = [function(number) for number in range(3)]
    seen = await asyncio.gather(*(_steps(stream, 5) for stream in streams))
    over = ["over"] * 3
    assert [[0, 0, "KeyError", *over[1:]], [1, "ValueError", *over], [2, "over", *over]] == seen


async def _steps(stream: Any, count: int) -> list[Any]:
    seen: list[Any] = []
    for _ in range(count):
        try:
            seen.append(await anext(stream))
        except StopAsyncIteration:
            seen.append("over")
        except Exception as error:
            seen.append(type(error).__name__)
    return seen


@virtual
async def test_an_exception_as_an_item_ends_one_stream_with_it():
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def function(items: list[int]) -> Any:
        yield items
        yield [KeyError("mine"), items[1]]

    results: Any = await asyncio.gather(
        read(function(1)), read(function(2)), return_exceptions=True
    )
    first, second = results
    assert isinstance(first, KeyError)
    assert [2, 2] == second


@virtual
async def test_an_exception_raised_ends_every_stream_that_goes_on():
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def function(items: list[int]) -> Any:
        yield [items[0], StopAsyncIteration]
        raise ValueError("model")

    results: Any = await asyncio.gather(
        read(function(1)), read(function(2)), return_exceptions=True
    )
    first, second = results
    assert isinstance(first, ValueError)
    assert [] == second


@virtual
async def test_a_step_of_a_wrong_length_ends_every_stream():
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def function(items: list[int]) -> Any:
        yield items
        yield [1]

    results = await asyncio.gather(read(function(1)), read(function(2)), return_exceptions=True)
    for error in results:
        assert isinstance(error, BatchError)
        assert "1 results for a batch of 2" in str(error)


@virtual
async def test_a_caller_who_leaves_drops_out_and_the_others_go_on():
    counter = Counter()
    stays = asyncio.create_task(read(counter.count(4)))
    async for number in counter.count(4):
        if number == 1:
            break
    assert [0, 1, 2, 3] == await stays


@virtual
async def test_the_generator_is_closed_when_all_have_left():
    counter = Counter()
    streams = [counter.count.__pyserve_submit__(100) for _ in range(2)]
    for stream in streams:
        assert 0 == await anext(stream)
    await streams[0].aclose()
    await asyncio.sleep(1.5)
    assert counter.closed_at is None
    await streams[1].aclose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert counter.closed_at == 1.5
    assert counter.count.stats().running == 0
    assert [] == await read(streams[1])


@virtual
async def test_a_cancelled_reader_leaves():
    counter = Counter()
    reader = asyncio.create_task(read(counter.count(100)))
    await asyncio.sleep(2.5)
    reader.cancel()
    await asyncio.wait([reader])
    await asyncio.sleep(0.1)
    assert counter.closed_at == 2.5


@virtual
async def test_a_stream_that_nobody_holds_any_more_is_left():
    counter = Counter()
    stream = counter.count.__pyserve_submit__(100)
    assert 0 == await anext(stream)
    del stream
    gc.collect()
    await asyncio.sleep(0.1)
    assert counter.closed_at == 0.0


@virtual
async def test_a_caller_who_left_before_the_run_is_not_in_it():
    counter = Counter()
    streams = [counter.count.__pyserve_submit__(1) for _ in range(2)]
    await streams[0].aclose()
    assert [0] == await read(streams[1])
    assert [[1]] == counter.batches


@virtual
async def test_the_slowest_reader_sets_the_pace():
    """Memory stays bounded: a generator waits for readers who are a buffer behind."""
    yielded = 0

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def fast(items: list[int]) -> Any:
        nonlocal yielded
        for _ in range(100):
            yielded += 1
            yield items

    slow = fast.__pyserve_submit__(1)
    quick = asyncio.create_task(read(fast(2)))
    await asyncio.sleep(1)
    assert yielded == BUFFER_MAX
    assert 1 == await anext(slow)
    await asyncio.sleep(1)
    assert yielded == BUFFER_MAX + 1
    await slow.aclose()
    assert [2] * 100 == await quick


def test_a_generator_cannot_be_run_again_in_halves():
    with pytest.raises(BatchError, match="isolate_failures"):

        @pyserve.batch(isolate_failures=True)
        async def function(items: list[int]) -> Any:
            yield items


@virtual
async def test_keyword_parameters_and_sizes_work_for_streams_too():
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0, batch_size_fn=lambda _: -1)
    async def refused(items: list[int]) -> Any:
        yield items

    with pytest.raises(OptionError, match="batch_size_fn"):
        await read(refused(1))

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def scaled(items: list[int], *, by: Any = 2) -> Any:
        yield [item * factor for item, factor in zip(items, by, strict=True)]

    assert [[2], [9]] == await asyncio.gather(read(scaled(1)), read(scaled(3, by=3)))
