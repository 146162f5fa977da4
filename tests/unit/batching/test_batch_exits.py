"""SystemExit in a batched function is a failure of its batch, not of the loop."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import pyserve
from pyserve.errors import BatchError


@pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
async def double(numbers: list[int]) -> list[int | BaseException]:
    if 0 in numbers:
        raise SystemExit("no zero")
    return [SystemExit("item") if number < 0 else 2 * number for number in numbers]


@pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0)
async def count(numbers: list[int]) -> AsyncIterator[list[int]]:
    yield numbers
    raise SystemExit("enough")


async def test_an_exit_fails_its_batch_and_leaves_the_loop_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every caller of that batch is told; the next batch runs."""
    failed = await asyncio.gather(double(0), double(1), return_exceptions=True)
    assert [BatchError, BatchError] == [type(error) for error in failed]
    assert "raised SystemExit, which fails its batch only" in caplog.text
    assert 4 == await double(2)


async def test_an_exit_as_an_item_fails_its_caller_only() -> None:
    """It must not be raised in the task that awaits it."""
    results = await asyncio.gather(double(-1), double(3), return_exceptions=True)
    assert [BatchError, 6] == [
        type(each) if isinstance(each, Exception) else each for each in results
    ]


async def test_an_exit_ends_a_stream_of_batches_with_an_error() -> None:
    """What came before is delivered."""
    stream = count(1)
    assert 1 == await anext(stream)
    with pytest.raises(BatchError, match="SystemExit"):
        await anext(stream)
    assert 4 == await double(2)
