"""Streams answered in order with several items on their way."""

import asyncio

import pytest

from services.digits.ordered import ordered


async def stream(*items):
    for item in items:
        await asyncio.sleep(0)
        yield item


async def hang(number, cancelled):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append(number)
        raise


async def test_results_come_in_the_order_of_the_items():
    """The first item is the last one to be ready."""
    gates = [asyncio.Event() for _ in range(4)]
    gates[3].set()

    async def work(number):
        await gates[number].wait()
        if number:
            gates[number - 1].set()
        return number * 10

    results = [result async for result in ordered(stream(0, 1, 2, 3), work, ahead_max=4)]
    assert [0, 10, 20, 30] == results


async def test_no_more_than_ahead_max_items_are_on_their_way():
    running, most = 0, 0

    async def work(number):
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10):  # turns of the loop: more than the reader needs for three items
            await asyncio.sleep(0)
        running -= 1
        return number

    results = [result async for result in ordered(stream(*range(20)), work, ahead_max=3)]
    assert list(range(20)) == results
    assert 3 == most


async def test_an_error_of_the_work_ends_the_stream_and_cancels_the_rest():
    third_started = asyncio.Event()
    cancelled: list[int] = []

    async def work(number):
        if number == 1:
            await third_started.wait()
            raise ValueError("one")
        if number == 2:
            third_started.set()
            await hang(number, cancelled)
        return number

    results = ordered(stream(0, 1, 2), work, ahead_max=3)
    assert 0 == await anext(results)
    with pytest.raises(ValueError, match="one"):
        await anext(results)
    assert [2] == cancelled


async def test_an_error_of_the_items_comes_after_the_results_before_it():
    async def broken():
        yield 1
        raise ConnectionError("gone")

    async def work(number):
        await asyncio.sleep(0)
        return number

    results = ordered(broken(), work, ahead_max=3)
    assert 1 == await anext(results)
    with pytest.raises(ConnectionError, match="gone"):
        await anext(results)


async def test_closing_the_stream_cancels_what_is_on_its_way():
    second_started = asyncio.Event()
    cancelled: list[int] = []

    async def work(number):
        if number == 1:
            second_started.set()
            await hang(number, cancelled)
        return number

    results = ordered(stream(0, 1), work, ahead_max=2)
    assert 0 == await anext(results)
    await second_started.wait()
    await results.aclose()
    assert [1] == cancelled
