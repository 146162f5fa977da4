"""Runs calls whose handler only queues them, as a batched one does: without a task for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pyserve.aio._context import ServicerContext
from pyserve.aio._handlers import CallKit, Method
from pyserve.aio._outcome import fail, finish_unary, release
from pyserve.bridge import CallStarter, rust
from pyserve.request import CURRENT, Source


class DeferredUnary:
    """A handler of one request and one response that is answered later, from elsewhere.

    Args:
        queue: Gets the request, the context, the source of the call's ``Request``, and an object
            that takes the result as a future does. If it raises, the call fails with that error.
    """

    def __init__(self, queue: Callable[[Any, Any, Source | None, Any], None]) -> None:
        self.queue = queue

    async def __call__(self, request: object, context: object) -> object:
        """Answer a call that needs a task anyway, because of interceptors or a time limit."""
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.queue(request, context, CURRENT.get(), result)
        return await result


class DeferredReply:
    """The single response of a call, with those methods of a future that are needed to answer it.

    It is used on the loop only. Unlike with a future, the result is sent before ``set_result``
    returns. An exception ends the call and is not kept.
    """

    __slots__ = ("_callbacks", "_context", "_is_done", "_token")

    def __init__(self, context: ServicerContext, token: int) -> None:
        self._context = context
        self._token = token
        self._is_done = False
        self._callbacks: list[Callable[[Any], object]] | None = None

    def done(self) -> bool:
        """Return whether it was answered, or its client has gone."""
        return self._is_done

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call ``callback`` with this in the loop's next turn after it is done."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def set_result(self, response: Any, /) -> None:
        """Send ``response``; what cannot be sent fails the call."""
        context = self._context
        method = context.method
        try:
            if context.plain:
                known = type(response) is method.response_type
                raw = method.serialize(response) if known else method.serialize_checked(response)
                # Before the call counts as finished: a payload that the ring rejects fails it.
                must_flush = context.call.reply(raw)
                context.finished = True
                if must_flush:
                    context.kit.flush()
            else:
                finish_unary(context, response)
        except BaseException as error:
            self.set_exception(error)
        else:
            self._end()

    def set_exception(self, error: BaseException, /) -> None:
        """End the call as a handler that raised ``error`` would."""
        # The answering code serves many calls, so it does not run in this call's context.
        variable = CURRENT.set(self._context)
        try:
            fail(self._context, error)
        finally:
            CURRENT.reset(variable)
            self._end()

    def cancel(self) -> bool:
        """End the call as a handler that was cancelled; ``False`` when it is done already."""
        if self._is_done:
            return False
        self.set_exception(asyncio.CancelledError())
        return True

    def _end(self) -> None:
        self._is_done = True
        context = self._context
        context.kit.receivers.pop(self._token, None)
        context.on_cancelled = None  # It holds this, a cycle that only the collector would free.
        if self._callbacks is not None:
            for callback in self._callbacks:
                context.kit.loop.call_soon(callback, self)
        if not context.plain or context.request_made is not None:
            variable = CURRENT.set(context)
            release(context)
            CURRENT.reset(variable)


def starter_of_deferred(function: DeferredUnary, method: Method, kit: CallKit) -> CallStarter:
    """Return what starts the calls of ``function``, the handler of ``method``."""
    receivers = kit.receivers
    queue = function.queue
    deserialize = method.deserialize

    def start(token: int, call: rust.ServerCall, message: bytes | None) -> None:
        context = ServicerContext(call, method, kit)
        receivers[token] = context
        reply = DeferredReply(context, token)
        context.on_cancelled = reply.cancel
        try:
            try:  # As Method.read, which would cost every call a call.
                request = deserialize(message)  # type: ignore[arg-type]
            except Exception as error:
                raise method.unreadable(error) from error
            queue(request, context, context, reply)
        except BaseException as error:
            reply.set_exception(error)

    return start
