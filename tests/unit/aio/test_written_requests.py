"""Requests that are written to an intercepted call: as many as writers that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pyserve.aio._client_interceptors import _WrittenRequests

TIMEOUT_S = 20.0


class Call:
    """A call that ends when a test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[object], None]] = []

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self.callbacks.append(callback)


@pytest.fixture
def requests() -> _WrittenRequests:
    return _WrittenRequests()


async def test_writers_that_give_up_leave_nothing(requests: _WrittenRequests) -> None:
    call = Call()
    for number in range(1_000):
        writing = asyncio.ensure_future(requests.put(number, call))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    assert 0 == len(requests._waiting)

    writing = asyncio.ensure_future(requests.put("last", call))
    async with asyncio.timeout(TIMEOUT_S):
        assert "last" == await anext(requests)
        await writing
    assert 1 == len(call.callbacks), "a long stream keeps nothing of what is past"


async def test_requests_come_in_order_and_then_the_end(requests: _WrittenRequests) -> None:
    call = Call()
    writers = [asyncio.ensure_future(requests.put(number, call)) for number in range(3)]
    await asyncio.sleep(0)
    requests.end()
    requests.end()
    async with asyncio.timeout(TIMEOUT_S):
        assert [0, 1, 2] == [each async for each in requests]
        await asyncio.gather(*writers)


async def test_the_end_of_the_call_is_that_of_every_writer(requests: _WrittenRequests) -> None:
    call = Call()
    writers = [asyncio.ensure_future(requests.put(number, call)) for number in range(3)]
    await asyncio.sleep(0)
    (on_done,) = call.callbacks
    on_done(call)
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*writers)
        await requests.put("too late", call)
    assert 0 == len(requests._waiting)
