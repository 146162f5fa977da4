"""Runs calls of ``def`` handlers on the pool.

Such a handler cannot be cancelled: at the deadline the client is answered, the thread runs on,
and the call keeps its slot at the gate until the thread returns.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from pyserve.aio._context import ServicerContext, SyncServicerContext
from pyserve.aio._handlers import CallKit, Messages
from pyserve.aio._outcome import fail, finish_stream, finish_unary, release
from pyserve.aio._streams import MessageStream, SyncRequestIterator
from pyserve.aio._tasks import send_messages
from pyserve.bridge import rust
from pyserve.request import CURRENT

_LOGGER = logging.getLogger(__name__)


class ThreadedCall:
    """One call of a ``def`` handler: what its thread does, and what it asks of the loop.

    The thread queues and flushes its own commands. Everything else (receivers, callbacks, the
    slot) belongs to the loop, which is notified by ``call_soon_threadsafe``.
    """

    def __init__(self, context: SyncServicerContext, token: int, message: bytes | None) -> None:
        self._context = context
        self._token = token
        self._message = message
        self._variables = contextvars.copy_context()
        self._variables.run(CURRENT.set, context)
        self._work: Future[None] | None = None
        self._responses: Iterator[Any] | None = None
        self._parked = False
        self._ended = False
        context.on_cancelled = self.cancel
        context.on_writable = self.on_writable
        if context.method.request_streaming:
            context.stream = _open_requests(context, message)

    def submit(self) -> None:
        """Queue the next step on the pool; on the loop."""
        self._parked = False
        try:
            executor = self._context.kit.executor()
            self._work = executor.submit(self._run)
        except RuntimeError as error:  # the pool was shut down
            fail(self._context, error)
            self._end()

    def on_writable(self) -> None:
        """Go on after the client has read; on the loop."""
        if self._parked:
            self.submit()

    def cancel(self) -> None:
        """The client has gone. Ends at once what no thread runs; on the loop."""
        if self._parked:
            # The generator is closed where it ran: on the pool.
            self.submit()
        elif self._responses is None and self._work is not None and self._work.cancel():
            # A generator that has begun is left to the step that waits: it closes it.
            self._end()

    def _run(self) -> None:
        # The loop is notified only when the context variables are free again: it may submit the
        # next step at once, and another thread may begin that before this one has returned.
        after = self._end
        try:
            after = self._variables.run(self._step)
        finally:
            self._tell_loop(after)

    def _step(self) -> Callable[[], None]:
        """Do the work of one thread; return what the loop is to do then."""
        context = self._context
        try:
            if self._responses is None:
                found = context.method.function(self._request(), context)
                if isinstance(found, Messages):
                    found = found.items
                elif not context.method.response_streaming:
                    finish_unary(context, found)
                    return self._end
                if isinstance(found, AsyncIterator):
                    return partial(self._stream_on_loop, found)
                self._responses = iter(found)
            if self._send_responses():
                finish_stream(context)
            else:
                return self._park
        except BaseException as error:
            fail(context, error)
        return self._end

    def _stream_on_loop(self, items: AsyncIterator[Any]) -> None:
        """Go on without a thread, where what the handler has returned can run; on the loop."""
        context = self._context
        if context.cancel_reason is not None:
            self._end()
            return
        task = context.kit.loop.create_task(self._stream(items), context=self._variables)
        context.on_cancelled = task.cancel
        context.on_writable = None  # Its stream waits for that now.
        task.add_done_callback(lambda _: self._end())

    async def _stream(self, items: AsyncIterator[Any]) -> None:
        try:
            await send_messages(self._context, items)
        except BaseException as error:
            fail(self._context, error)

    def _request(self) -> Any:
        context = self._context
        if context.method.request_streaming:
            return context.stream
        return context.method.read(self._message)  # type: ignore[arg-type]

    def _send_responses(self) -> bool:
        """Write until the generator ends (``True``) or the client does not read (``False``)."""
        context = self._context
        parked = False
        try:
            parked = context.cancel_reason is None and not self._send_while_writable()
        finally:
            # The handler's own cleanup belongs to the call, not to the garbage collector.
            close: Callable[[], None] | None = getattr(self._responses, "close", None)
            if close is not None and not parked:
                close()
        return not parked

    def _send_while_writable(self) -> bool:
        """Write until the generator or the call ends (``True``) or no room is left."""
        assert self._responses is not None
        context = self._context
        for response in self._responses:
            if context.done():
                break
            context.queue_message(context.method.serialize_checked(response))
            if not context.call.writable():
                return False
        return True

    def _park(self) -> None:
        # Decided on the loop, where WRITABLE and CANCEL arrive: neither can be missed.
        if self._context.cancel_reason is not None or self._context.call.writable():
            self.submit()
        else:
            self._parked = True

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._context.kit.receivers.pop(self._token, None)
            release(self._context)

    def _tell_loop(self, step: Callable[[], None]) -> None:
        try:
            self._context.kit.loop.call_soon_threadsafe(step)
        except RuntimeError:
            # The loop was closed under the thread; closing it has ended the call.
            _LOGGER.debug("%s returned after its loop was closed", self._context.method.path)


def _open_requests(context: ServicerContext, message: bytes | None) -> Any:
    requests = SyncRequestIterator(context, context.call)
    if isinstance(context.stream, MessageStream):
        for raw in context.stream.messages:
            requests.on_event(rust.MESSAGE, raw)
        if context.stream.half_closed:
            requests.on_event(rust.HALF_CLOSE, None)
    elif message is not None:
        requests.on_event(rust.MESSAGE, message)
        requests.on_event(rust.HALF_CLOSE, None)
    return requests


def thread_kit(kit: CallKit, flush_now: Callable[[], None]) -> CallKit:
    """Return ``kit`` for calls on threads, which cannot wait for the loop's turn to flush."""
    return replace(kit, flush=flush_now)
