"""What calls of server and client share: message queue, write gate, done callbacks, tasks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from pyserve.bridge import rust
from pyserve.observe.failures import exc_info_of, failure_logger

if TYPE_CHECKING:
    from pyserve.aio._context import ServicerContext


_HALF_CLOSE = rust.HALF_CLOSE
_MESSAGE = rust.MESSAGE
_WRITABLE = rust.WRITABLE


class StreamCall(Protocol):
    """The part of the native call, incoming or outgoing, that a stream uses."""

    def writable(self) -> bool:
        """Less than the buffer's bound waits to be sent."""

    def taken(self, size: int) -> bool:
        """Return receive credit."""


class MessageStream:
    """Received messages in order, and the wait for room to send.

    The native side bounds ``messages`` by credit (64 KiB and one message), which ``taken``
    gives back when Python takes a message, not when it arrives.
    """

    def __init__(
        self, call: StreamCall, flush: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.messages: deque[bytes] = deque()
        self.half_closed = False
        self.broken = False
        self._call = call
        self._flush = flush
        self._loop = loop
        self._readers: list[asyncio.Future[None]] = []
        self._writers: list[asyncio.Future[None]] = []

    def on_event(self, kind: int, payload: object) -> None:
        """Record one event of the ring."""
        if kind == _MESSAGE:
            self.messages.append(payload)  # type: ignore[arg-type]
            if self._readers:
                _wake(self._readers)
        elif kind == _HALF_CLOSE:
            self.close()
        elif kind == _WRITABLE:
            _wake(self._writers)

    def close(self) -> None:
        """No message will come any more."""
        self.half_closed = True
        _wake(self._readers)

    def wake_all(self) -> None:
        """The call is over: waiters look again and give up."""
        self.broken = True
        self.close()
        _wake(self._writers)

    async def read_raw(self) -> bytes | None:
        """Take the next message; ``None`` when the peer sends no more."""
        while not self.messages:
            if self.half_closed:
                return None
            await self._wait(self._readers)
        return self.take()

    def take(self) -> bytes:
        """Take a message that is there and return its credit."""
        raw = self.messages.popleft()
        if self._call.taken(len(raw)):
            self._flush()
        return raw

    async def wait_writable(self) -> None:
        """Wait until the send buffer has room, or the call is over."""
        while not self.broken and not self._call.writable():
            await self._wait(self._writers)

    async def _wait(self, waiters: list[asyncio.Future[None]]) -> None:
        future = self._loop.create_future()
        waiters.append(future)
        try:
            await future
        finally:
            if future in waiters:
                waiters.remove(future)


class RequestIterator:
    """The requests of a streaming call, as the handler iterates over them."""

    def __init__(self, context: ServicerContext, stream: MessageStream) -> None:
        self._context = context
        self._stream = stream
        self._read = context.method.read

    def __aiter__(self) -> RequestIterator:
        return self

    async def __anext__(self) -> Any:
        stream = self._stream
        if not stream.messages:
            raw = await stream.read_raw()
            if raw is None:
                self._context.check_running()
                raise StopAsyncIteration
            return self._read(raw)
        self._context.check_running()
        return self._read(stream.take())


class SyncRequestIterator:
    """The requests of a streaming call for a ``def`` handler, which may block its thread."""

    def __init__(self, context: ServicerContext, call: StreamCall) -> None:
        self._context = context
        self._call = call
        self._changed = threading.Condition()
        self._messages: deque[bytes] = deque()
        self._half_closed = False

    def on_event(self, kind: int, payload: object) -> None:
        """Record one event of the ring, on the loop."""
        with self._changed:
            if kind == _MESSAGE:
                self._messages.append(payload)  # type: ignore[arg-type]
            elif kind == _HALF_CLOSE:
                self._half_closed = True
            self._changed.notify_all()

    def wake_all(self) -> None:
        """The call is over: the handler's thread is to notice."""
        with self._changed:
            self._half_closed = True
            self._changed.notify_all()

    def __iter__(self) -> SyncRequestIterator:
        return self

    def __next__(self) -> Any:
        with self._changed:
            # Ends with the client's half-close, its cancellation or its deadline.
            while not self._messages and not self._half_closed:
                self._changed.wait()
            if self._context.cancel_reason is not None:
                raise grpc.aio.UsageError("the call was cancelled while reading its requests")
            if not self._messages:
                raise StopIteration
            raw = self._messages.popleft()
        if self._call.taken(len(raw)):
            self._context.kit.flush()
        return self._context.method.read(raw)


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for future in waiters:
        if not future.done():
            future.set_result(None)
    waiters.clear()


# No call has failed: once a minute is enough.
_LOGGER = failure_logger(__name__, lines=None)


def is_unstarted(task: asyncio.Task[None]) -> bool:
    """Return whether a task has not had its first step; cancelled now, it runs no line at all."""
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and (
        inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
    )


def run_callbacks(
    loop: asyncio.AbstractEventLoop, callbacks: Iterable[Callable[[], object]], place: str
) -> None:
    """Call each of them; what one raises goes to the exception handler of ``loop``.

    As asyncio does it for callbacks of its own: the others run, and only what ends the process
    (SystemExit, KeyboardInterrupt) is raised.

    Args:
        loop: Its exception handler is told.
        callbacks: In their order.
        place: Of what they are the callbacks, for the message.
    """
    for callback in callbacks:
        try:
            callback()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            _tell(loop, f"a done callback of {place} failed", error)


def _tell(loop: asyncio.AbstractEventLoop, message: str, error: BaseException) -> None:
    if loop.get_exception_handler() is None:
        # The loop would log every one, and clients decide how many there are.
        _LOGGER.error("%s", message, exc_info=exc_info_of(error))
    else:
        loop.call_exception_handler({"message": message, "exception": error})
