"""The state of one outgoing call, which receives its events, behind the call objects.

The endpoint holds the state, and the application holds the call object. So an abandoned stream is
noticed, and cancelled, when its call object is garbage-collected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc

from pyserve.aio._metadata import CODE_BY_NUMBER, WireMetadata, as_aio_metadata
from pyserve.aio._streams import MessageStream, run_callbacks
from pyserve.bridge import rust

if TYPE_CHECKING:
    from pyserve.bridge import LoopEndpoint

_LOGGER = logging.getLogger(__name__)

RPC_FINISHED = "RPC already finished."
RPC_HALF_CLOSED = 'RPC is half closed after calling "done_writing".'
LOCALLY_CANCELLED = "Locally cancelled by application!"

# A request iterator may never await anything. So often the loop gets its turn, in which the end of
# the call is seen; a turn costs about as much as a message.
_WRITES_PER_TURN = 16

_CANCELLED = grpc.StatusCode.CANCELLED.value[0]
_DONE = rust.DONE
_INITIAL_METADATA = rust.INITIAL_METADATA


class CallState:
    """One outgoing call: status, metadata, messages, and who waits for them.

    Attributes:
        settled: The status is known.
        cancelled_here: It was settled by the application's own cancellation.
        response: The response of a unary response, serialized, once settled with OK.
    """

    settled = False
    cancelled_here = False
    response: bytes | None = None
    half_closed = False
    _written = 0
    connected = False
    stream: MessageStream | None = None
    request_task: asyncio.Task[None] | None = None
    _details: str | None = None
    _done_callbacks: tuple[Callable[[], None], ...] = ()
    _waiters: tuple[asyncio.Future[None], ...] = ()
    _metadata_waiters: tuple[asyncio.Future[None], ...] = ()

    def __init__(self, call: rust.ClientCall, endpoint: LoopEndpoint, owner: object) -> None:
        self.call = call
        self.endpoint = endpoint
        self.owner = owner
        endpoint.receivers[call.token] = self
        if call.started:
            endpoint.schedule_flush()

    def open_stream(self) -> MessageStream:
        """Prepare for messages in either direction."""
        self.stream = MessageStream(self.call, self.endpoint.schedule_flush, self.endpoint.loop)
        return self.stream

    # --- events -------------------------------------------------------------------------

    def on_event(self, kind: int, _subject: object, payload: object) -> None:
        """Take one event of the ring."""
        if kind == _DONE:
            self.response = payload  # type: ignore[assignment]
            self._settle()
        elif kind == _INITIAL_METADATA:
            self.connected = True
            self._metadata_waiters = _wake(self._metadata_waiters)
        elif self.stream is not None:
            self.connected = True
            self.stream.on_event(kind, payload)

    def abandon(self) -> None:
        """The loop closes: reset the call without telling anybody."""
        self.settled = self.cancelled_here = True
        self.call.cancel(_CANCELLED, LOCALLY_CANCELLED)

    def cancel(self, details: str) -> bool:
        """Reset the call and settle it as CANCELLED; ``False`` when it was settled before."""
        if self.settled:
            return False
        self.cancelled_here = True
        self._details = details
        if self.call.cancel(_CANCELLED, details):
            self.endpoint.schedule_flush()
        if self.stream is not None:
            self.stream.messages.clear()
        self._settle()
        return True

    def _settle(self) -> None:
        self.settled = True
        self.endpoint.receivers.pop(self.call.token, None)
        if self.stream is not None:
            self.stream.wake_all()
        if self.request_task is not None:
            self.request_task.cancel()
        self._metadata_waiters = _wake(self._metadata_waiters)
        self._waiters = _wake(self._waiters)
        callbacks, self._done_callbacks = self._done_callbacks, ()
        run_callbacks(self.endpoint.loop, callbacks, "a call")

    # --- status -------------------------------------------------------------------------

    def done(self) -> bool:
        """The status is known and every message was read."""
        return self.settled and not (self.stream is not None and self.stream.messages)

    def code(self) -> grpc.StatusCode:
        """Return the status code of a settled call."""
        if self.cancelled_here:
            return grpc.StatusCode.CANCELLED
        return CODE_BY_NUMBER.get(self.call.code() or 0, grpc.StatusCode.UNKNOWN)

    def details(self) -> str:
        """Return the status text of a settled call; as in grpc none beside OK."""
        if self.code() is grpc.StatusCode.OK:
            return ""
        details = self._details if self.cancelled_here else self.call.details()
        return details or ""

    def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the response headers, empty when none came."""
        return as_aio_metadata(self.call.initial_metadata())

    def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailers of a settled call."""
        trailers: WireMetadata | None = None
        if not self.cancelled_here:
            trailers = self.call.trailing_metadata()
        return as_aio_metadata(trailers)

    def debug_error_string(self) -> str:
        """Return more words about the status of a settled call."""
        return "" if self.cancelled_here else self.call.debug_error_string()

    def raise_for_status(self) -> None:
        """Raise unless the call was settled with OK.

        Raises:
            asyncio.CancelledError: The application itself cancelled the call.
            grpc.aio.AioRpcError: Any other status.
        """
        if self.cancelled_here:
            raise asyncio.CancelledError
        code = self.code()
        if code is not grpc.StatusCode.OK:
            raise self.error(code)

    def error(self, code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        """Return the status of a settled call as an exception."""
        return grpc.aio.AioRpcError(
            code,
            self.initial_metadata(),
            self.trailing_metadata(),
            details=self.details(),
            debug_error_string=self.debug_error_string(),
        )

    # --- waiting ------------------------------------------------------------------------

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that ends when the call is settled."""
        future = self.endpoint.loop.create_future()
        self._waiters = (*self._waiters, future)
        return future

    async def wait_settled(self) -> None:
        """Wait for the status; cancelling this wait leaves the call alone."""
        if not self.settled:
            await self.waiter()

    async def wait_initial_metadata(self) -> None:
        """Wait for response headers or the status."""
        while not self.settled and self.call.initial_metadata() is None:
            future = self.endpoint.loop.create_future()
            self._metadata_waiters = (*self._metadata_waiters, future)
            await future

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` when the call is settled; immediately if it already is.

        An exception of the callback goes to the loop's exception handler, or, if it was called
        immediately, to the caller of this method.
        """
        if self.settled:
            callback()
        else:
            self._done_callbacks = (*self._done_callbacks, callback)

    # --- requests -----------------------------------------------------------------------

    async def write(self, message: bytes, compression: int) -> None:
        """Send one request message; waits while the server does not read.

        Raises:
            asyncio.InvalidStateError: The call has ended, or ``half_close`` was called.
            grpc.aio.AioRpcError: The call ended while waiting.
        """
        if self.settled:
            raise asyncio.InvalidStateError(RPC_FINISHED)
        if self.half_closed:
            raise asyncio.InvalidStateError(RPC_HALF_CLOSED)
        if self.call.write(message, compression):
            self.endpoint.schedule_flush()
        self._written += 1
        if not self.call.writable() and self.stream is not None:
            await self.stream.wait_writable()
            if self.done():
                self.raise_for_status()
        elif not self._written % _WRITES_PER_TURN:
            await asyncio.sleep(0)

    def half_close(self) -> None:
        """Say that no request follows. Idempotent; without effect on an ended call."""
        if self.settled or self.half_closed:
            return
        self.half_closed = True
        if self.call.half_close():
            self.endpoint.schedule_flush()

    def send_all(
        self,
        requests: Iterable[Any] | AsyncIterable[Any],
        serialize: Callable[[Any], bytes],
        compression: int,
    ) -> None:
        """Send every request of the iterator in a task that ends with the call."""
        self.request_task = self.endpoint.loop.create_task(
            self._send_all(requests, serialize, compression), name="pyserve request iterator"
        )

    async def _send_all(
        self,
        requests: Iterable[Any] | AsyncIterable[Any],
        serialize: Callable[[Any], bytes],
        compression: int,
    ) -> None:
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self.write(serialize(request), compression)
            else:
                for request in requests:
                    await self.write(serialize(request), compression)
            self.half_close()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call ended during the iteration; its status is reported where the call is awaited.
            _LOGGER.debug("the call ended before its request iterator")
        except asyncio.CancelledError:
            self.cancel(LOCALLY_CANCELLED)
            raise
        except Exception:
            _LOGGER.debug("the request iterator raised; the call is cancelled", exc_info=True)
            self.cancel(LOCALLY_CANCELLED)


def _wake(waiters: tuple[asyncio.Future[None], ...]) -> tuple[asyncio.Future[None], ...]:
    for future in waiters:
        if not future.done():
            future.set_result(None)
    return ()
