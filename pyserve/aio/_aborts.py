"""What ``context.abort`` of an ``async def`` handler returns, in place of a coroutine.

A coroutine does nothing before it is awaited. An abort that nobody awaits would let the client take
a refused call for a success, so the end of the call is queued when ``abort`` is called.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc

if TYPE_CHECKING:
    from pyserve.aio._context import ServicerContext

Function = TypeVar("Function", bound=Callable[..., Any])

_CAN_AWAIT = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class PendingAbort(Coroutine[Any, Any, NoReturn]):
    """Raises the error of an abort when it is awaited.

    Attributes:
        place: Where the abort was called, ``file:line``; "" once it has been awaited.
    """

    __slots__ = ("_error", "place")

    def __init__(self, error: grpc.aio.AbortError, place: str) -> None:
        self._error = error
        self.place = place

    def __await__(self) -> Generator[Any, Any, NoReturn]:
        """Raise the error."""
        self.send(None)

    def send(self, _value: Any) -> NoReturn:
        """Raise the error, for a task that was made of this."""
        self.place = ""
        raise self._error

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        """Raise what a task that was cancelled before its first step throws in."""
        return super().throw(kind, value, traceback)

    def close(self) -> None:
        """Do nothing: the end of the call is queued already."""


def pend(context: ServicerContext, error: grpc.aio.AbortError) -> PendingAbort:
    """Return what the caller of ``context.abort``, which calls this, has to await.

    Raises:
        grpc.aio.AbortError: It cannot await: it is a plain function that an interceptor runs on
            the loop, or one whose caller gets the same error.
    """
    caller = sys._getframe(2)  # noqa: SLF001  # There is no other way to know.
    if not caller.f_code.co_flags & _CAN_AWAIT:
        raise error
    context.pending_abort = PendingAbort(error, f"{caller.f_code.co_filename}:{caller.f_lineno}")
    return context.pending_abort


def counts_as_async(function: Function) -> Function:
    """Mark a function that returns what has to be awaited, as those of grpc.aio are marked.

    CPython 3.11 lets only ``asyncio.iscoroutinefunction`` see that, not the one of ``inspect``.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    vars(function)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
    return function
