"""The call objects of the client, one class per kind, with the interface of ``grpc.aio.Call``."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Callable, Generator
from functools import partial
from typing import Any

import grpc

from pyserve.aio._call_state import LOCALLY_CANCELLED, CallState

_GC_CANCELLED = "Cancelled upon garbage collection!"
_API_STYLE_ERROR = "The iterator and read/write APIs may not be mixed on a single RPC."
_UNSET: Any = object()


class _Style(enum.Enum):
    ITERATOR = "iterator"
    READER_WRITER = "reader and writer"


class _Call:
    """What all kinds share: status, metadata, cancellation."""

    def __init__(
        self, state: CallState, deserialize: Callable[[bytes], Any], wait_ready: Any
    ) -> None:
        self._state = state
        self._deserialize = deserialize
        self._wait_ready = wait_ready

    def cancelled(self) -> bool:
        """Tell whether the call ended with CANCELLED."""
        return self._state.settled and self._state.code() is grpc.StatusCode.CANCELLED

    def cancel(self) -> bool:
        """Cancel the call; ``False`` when it has ended already."""
        return self._state.cancel(LOCALLY_CANCELLED)

    def done(self) -> bool:
        """Tell whether the call has ended."""
        return self._state.done()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback(call)`` when the call has ended; immediately if it already has.

        If the callback runs later, its exceptions go to the loop's exception handler.
        """
        self._state.add_done_callback(partial(callback, self))

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, ``None`` without one."""
        return self._state.call.time_remaining()

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the response headers when they are there."""
        await self._state.wait_initial_metadata()
        return self._state.initial_metadata()

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailers when the call has ended."""
        await self._state.wait_settled()
        return self._state.trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """Return the status code when the call has ended."""
        await self._state.wait_settled()
        return self._state.code()

    async def details(self) -> str:
        """Return the status text when the call has ended."""
        await self._state.wait_settled()
        return self._state.details()

    async def debug_error_string(self) -> str:
        """Return more words about the status when the call has ended."""
        await self._state.wait_settled()
        return self._state.debug_error_string()

    async def wait_for_connection(self) -> None:
        """Wait until the channel is connected.

        Raises:
            grpc.aio.AioRpcError: The call failed before.
        """
        await self._wait_ready(self._state)
        if self._state.settled:
            self._state.raise_for_status()

    async def failed_unanswered(self) -> grpc.aio.AioRpcError | None:
        """Wait for headers or the end; return the error of a call that failed without headers."""
        state = self._state
        await state.wait_initial_metadata()
        is_answered = state.connected or bool(state.call.initial_metadata())
        if not state.settled or state.cancelled_here or is_answered:
            return None
        code = state.code()
        return None if code is grpc.StatusCode.OK else state.error(code)

    def __repr__(self) -> str:
        name = type(self).__name__
        if not self._state.settled:
            return f"<{name} of an RPC in progress>"
        return (
            f"<{name} of RPC that terminated with:\n\tstatus = {self._state.code()}\n"
            f'\tdetails = "{self._state.details()}"\n>'
        )


class _UnaryResponse(_Call):
    _response: Any = _UNSET

    def __await__(self) -> Generator[Any, None, Any]:
        state = self._state
        if not state.settled:
            try:
                yield from state.waiter()
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._response is _UNSET:
            state.raise_for_status()
            self._response = self._deserialize(state.response)  # type: ignore[arg-type]
        return self._response


class _StreamResponse(_Call):
    _iterator: _Responses | None = None
    _style: _Style | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        self._use(_Style.ITERATOR)
        if self._iterator is None:
            self._iterator = _Responses(self, self._state, self._deserialize)
        return self._iterator

    async def read(self) -> Any:
        """Read one response, ``grpc.aio.EOF`` after the last.

        Raises:
            grpc.aio.AioRpcError: The call ended with a status other than OK.
            grpc.aio.UsageError: The call is being iterated over.
        """
        if self.done():
            self._state.raise_for_status()
            return grpc.aio.EOF
        self._use(_Style.READER_WRITER)
        raw = await read_raw(self._state)
        return grpc.aio.EOF if raw is None else self._deserialize(raw)

    def _use(self, style: _Style) -> None:
        if self._style is None:
            self._style = style
        elif self._style is not style:
            raise grpc.aio.UsageError(_API_STYLE_ERROR)

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is not None and not state.settled and not state.endpoint.closed:
            # The garbage collector may run in any thread, and in the middle of anything.
            with contextlib.suppress(RuntimeError):  # The loop has been closed meanwhile.
                state.endpoint.loop.call_soon_threadsafe(state.cancel, _GC_CANCELLED)


class _Responses:
    """The responses of a call as the application iterates over them."""

    def __init__(
        self, call: _StreamResponse, state: CallState, deserialize: Callable[[bytes], Any]
    ) -> None:
        self._call = call  # keeps the call from being collected, and so cancelled
        self._state = state
        self._deserialize = deserialize

    def __aiter__(self) -> _Responses:
        return self

    async def __anext__(self) -> Any:
        stream = self._state.stream
        assert stream is not None
        if stream.messages:
            return self._deserialize(stream.take())
        raw = await read_raw(self._state)
        if raw is None:
            raise StopAsyncIteration
        return self._deserialize(raw)


async def read_raw(state: CallState) -> bytes | None:
    """Take the next response of a stream; ``None`` after the last of a call that ended OK."""
    stream = state.stream
    assert stream is not None
    try:
        raw = await stream.read_raw()
    except asyncio.CancelledError:
        state.cancel(LOCALLY_CANCELLED)
        raise
    if raw is None:
        state.raise_for_status()
    return raw


class _StreamRequest(_Call):
    _serialize: Callable[[Any], bytes]
    _compression: int
    _iterates = False

    def send_requests(
        self, requests: Any, serialize: Callable[[Any], bytes], compression: int
    ) -> None:
        """Begin to send ``requests``; ``None``: the application calls ``write``."""
        self._serialize = serialize
        self._compression = compression
        if requests is not None:
            self._iterates = True
            self._state.send_all(requests, serialize, compression)

    async def write(self, request: Any) -> None:
        """Send one request; waits while the server does not read.

        Raises:
            asyncio.InvalidStateError: The call has ended, or ``done_writing`` was called.
            grpc.aio.UsageError: The call got a request iterator.
        """
        self._check_writes()
        try:
            await self._state.write(self._serialize(request), self._compression)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def done_writing(self) -> None:
        """Say that no request follows. Idempotent."""
        self._check_writes()
        self._state.half_close()

    @property
    def _done_writing_flag(self) -> bool:
        return self._state.half_closed

    def _check_writes(self) -> None:
        if self._iterates:
            raise grpc.aio.UsageError(_API_STYLE_ERROR)


class UnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    """One request, one response: await the call."""


class UnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    """One request, many responses: iterate, or ``read``."""


class StreamUnaryCall(_StreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]):
    """Many requests, one response: ``write`` and await the call."""


class StreamStreamCall(_StreamRequest, _StreamResponse, grpc.aio.StreamStreamCall[Any, Any]):
    """Many requests, many responses."""
