"""Answers a stream in order while several of its items are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def ordered(
    items: AsyncIterator[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    ahead_max: int,
) -> AsyncGenerator[Result, None]:
    """Yield ``work(item)`` for each item, in the items' order.

    Args:
        items: Read as they come.
        work: Called for up to ``ahead_max`` items at once.
        ahead_max: At least 1. Reading waits while this many results have not been taken.

    Raises:
        Exception: The first error, in the items' order, of ``work`` or of ``items``.

    Closing the generator cancels what is on its way.
    """
    # Running calls, and None behind the last one; `room` bounds the queue.
    running: asyncio.Queue[asyncio.Future[Result] | None] = asyncio.Queue()
    room = asyncio.Semaphore(ahead_max)

    async def read() -> None:
        try:
            async for item in items:
                await room.acquire()
                running.put_nowait(asyncio.ensure_future(work(item)))
        finally:
            running.put_nowait(None)

    reader = asyncio.create_task(read())
    current: asyncio.Future[Result] | None = None
    try:
        while (current := await running.get()) is not None:
            result = await current
            room.release()
            yield result
        await reader
    finally:
        left = [reader, current, *(running.get_nowait() for _ in range(running.qsize()))]
        unfinished = [future for future in left if future is not None and not future.done()]
        for future in unfinished:
            future.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
