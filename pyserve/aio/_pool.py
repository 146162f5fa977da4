"""Runs ``def`` functions on the server's pool, for tasks of the loop that wait for them.

A thread cannot be cancelled: the task that waits for one ends after it, so that the request
keeps its place at the gate as long as it keeps a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyserve.aio._context import ServicerContext
    from pyserve.aio._http import HttpCall

_END = object()


async def on_thread(
    call: HttpCall | ServicerContext,
    context: contextvars.Context,
    function: Callable[..., Any],
    *args: Any,
) -> Any:
    """Call ``function`` on a thread with the variables of ``context``.

    Cancelled while it waits for a thread, it is not called. Cancelled while it runs, its end
    is waited for.

    Raises:
        Exception: Whatever ``function`` raises; RuntimeError in place of StopIteration.
    """
    work = call.kit.executor().submit(_call, context, function, args)
    future = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not work.cancel():
            await _finished(future)
        raise


async def steps_on_threads(
    call: HttpCall | ServicerContext, items: Iterator[Any]
) -> AsyncGenerator[Any, None]:
    """Make the steps of a plain iterator on threads, one after the other; close it there too."""
    context = contextvars.copy_context()
    try:
        while (item := await on_thread(call, context, next, items, _END)) is not _END:
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            await on_thread(call, context, close)


def _call(context: contextvars.Context, function: Callable[..., Any], args: Any) -> Any:
    try:
        return context.run(function, *args)
    except StopIteration as error:  # No future can carry it.
        raise RuntimeError("a handler raised StopIteration") from error


async def _finished(future: asyncio.Future[Any]) -> None:
    """Wait for the end of a thread's work, with any outcome and even if cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()  # So that it is not reported as never retrieved.
