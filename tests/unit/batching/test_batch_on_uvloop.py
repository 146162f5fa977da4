"""Batches on uvloop, whose handle of a time that has come already does not know its time."""

import asyncio

import pytest

import pyserve

uvloop = pytest.importorskip("uvloop", reason="uvloop has no wheel for this platform")


def test_a_window_that_is_over_at_once_fails_nobody():
    """The call that fills a batch looks at the timer that the first one has set for now."""

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0001)
    async def double(numbers):
        await asyncio.sleep(0)
        return [2 * number for number in numbers]

    async def call_many():
        return [
            result
            for turn in range(20)
            for result in await asyncio.gather(*(double(turn + index) for index in range(3)))
        ]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results = runner.run(call_many())
    assert [2 * (turn + index) for turn in range(20) for index in range(3)] == results
