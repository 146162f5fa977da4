"""The servicer context: what a handler knows and decides about its call.

Every sending method only queues a command, so the context works on the loop and, for ``def``
handlers, on a thread of the pool.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pyserve.aio._metadata import (
    MetadataLike,
    Metadatum,
    WireMetadata,
    received,
    status_number,
    text_of_status,
    to_wire,
)
from pyserve.aio._options import compression_number
from pyserve.aio._outcome import PendingAbort, counts_as_async, pend
from pyserve.aio._streams import MessageStream, is_unstarted, run_callbacks
from pyserve.bridge import rust
from pyserve.request import Request

if TYPE_CHECKING:
    from pyserve.aio._handlers import CallKit, Method
    from pyserve.aio._streams import SyncRequestIterator

RPC_FINISHED = "RPC already finished."
# The second one as Ray Serve's clients write it.
_REQUEST_ID_KEYS = ("x-request-id", "request_id")
_MODEL_ID_KEYS = ("multiplexed_model_id", "serve_multiplexed_model_id")
_SSL_IDENTITY_KEYS = ("x509_subject_alternative_name", "x509_common_name")


class ServicerContext:
    """The context of one call, with the methods of ``grpc.aio.ServicerContext``.

    Fields that most calls never set are class attributes, which makes a context cheap.
    """

    # False as soon as anything but "one message, status OK" must be sent.
    plain = True
    # The call is over for the client: it was cancelled, timed out, or the server stopped.
    cancel_reason: int | None = None
    # A status was queued; nothing more may be sent.
    finished = False
    ended = False
    # Only while it runs: the task refers to this context, a cycle that only the collector frees.
    task: asyncio.Task[None] | None = None
    stream: MessageStream | SyncRequestIterator | None = None
    abort_error: grpc.aio.AbortError | None = None
    pending_abort: PendingAbort | None = None
    initial_metadata_sent = False
    compression: int | None = None
    on_cancelled: Callable[[], object] | None = None
    # Made when user code asks for it, or by a handler that knows more than the metadata.
    request_made: Request | None = None
    # For the request when it is made; empty: the id in the metadata.
    request_id = ""
    _tells_request_id = False
    _next_uncompressed = False
    _code: grpc.StatusCode | int | None = None
    _details = ""
    _trailing_metadata: WireMetadata = ()
    _done_callbacks: list[Callable[[Any], None]] | None = None

    def __init__(self, call: rust.ServerCall, method: Method, kit: CallKit) -> None:
        self.call = call
        self.method = method
        self.kit = kit

    # --- events -------------------------------------------------------------------------

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        """Take one event of this call from the ring."""
        if kind == rust.CANCEL:
            self.cancel_reason = int(subject)  # type: ignore[call-overload]
            self.plain = False
            if self.request_made is not None:
                self.request_made.cancel()
            if self.stream is not None:
                self.stream.wake_all()
            if self.on_cancelled is not None:
                self.on_cancelled()
            elif self.task is not None and not self.finished:
                self._cancel_task(self.task)
        elif self.stream is not None:
            self.stream.on_event(kind, payload)

    def _cancel_task(self, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step never runs, not even its `finally`:
        # a call that was cancelled in the same turn must be let go of here.
        if is_unstarted(task):
            task.add_done_callback(self._release_unstarted)
        task.cancel()

    def _release_unstarted(self, _: asyncio.Task[None]) -> None:
        self.kit.receivers.pop(self.call.token, None)
        if self.call.release():
            self.kit.flush()
        self.run_done_callbacks()

    def abandon(self) -> None:
        """The loop closes; stopping the server has ended the call."""
        self.cancel_reason = rust.CANCEL_SHUTDOWN
        self.plain = False
        if self.stream is not None:
            self.stream.wake_all()

    def run_done_callbacks(self) -> None:
        """Run the done callbacks, once the handler has ended. Called once, on the loop."""
        self.ended = True
        if self._done_callbacks is not None:
            callbacks, self._done_callbacks = self._done_callbacks, None
            calls = [partial(callback, self) for callback in callbacks]
            run_callbacks(self.kit.loop, calls, self.method.path)

    # --- the request of user code ----------------------------------------------------------

    def request(self) -> Request:
        """Return the request that child calls inherit from. It is made on first use."""
        return self.request_made or self.adopt_request(_request_of(self))

    def model_and_deadline(self) -> tuple[str, float | None]:
        """Return these two of the request, without making it."""
        if self.request_made is not None:
            return self.request_made.model_and_deadline()
        remaining_s = self.call.time_remaining()
        deadline = None if remaining_s is None else time.monotonic() + remaining_s
        return self.call.model_id, deadline

    def note_cost(self, cost: float) -> None:
        """Record what the call has cost so far, for the trailer that its router reads."""
        self.call.note_cost(cost)

    def adopt_request(self, request: Request) -> Request:
        """Make ``request`` the one of this call, and return it."""
        self.request_made = request
        # For a `def` handler the cancellation may have come on the loop meanwhile; it looks for
        # a request after it has set the reason, as this looks for the reason afterwards.
        if self.cancel_reason is not None:
            request.cancel()
        return request

    # --- messages -----------------------------------------------------------------------

    async def read(self) -> Any:
        """Read one request message, or ``grpc.aio.EOF`` when the client sends no more."""
        self.check_running()
        stream = self._need_stream()
        raw = await stream.read_raw()
        self.check_running()
        if raw is None:
            return grpc.aio.EOF
        return self.method.read(raw)

    async def write(self, message: Any) -> None:
        """Write one response message; waits while the client does not read.

        Raises:
            grpc.aio.UsageError: The method answers with one message, or the call is over.
        """
        self.check_running()
        if not self.method.response_streaming:
            raise grpc.aio.UsageError(
                f"{self.method.path} answers with one message: return it instead of using "
                "context.write()"
            )
        stream = self._need_stream()
        self.queue_message(self.method.serialize_checked(message))
        if not self.call.writable():
            await stream.wait_writable()

    def queue_message(self, raw: rust.Payload) -> None:
        """Queue one serialized message with the compression that is in force."""
        queued = self._announce_compression()
        self.initial_metadata_sent = True
        if self.call.write(raw, self.message_compression()) or queued:
            self.kit.flush()

    def _announce_compression(self) -> bool:
        # Headers that go with the first message name the server's default, not the call's own.
        if self.initial_metadata_sent or self.compression is None:
            return False
        return self.call.send_initial_metadata((), self.compression)

    def message_compression(self) -> int:
        """Return the compression of the next message."""
        if self._next_uncompressed:
            self._next_uncompressed = False
            return rust.IDENTITY
        if self.compression is not None:
            return self.compression
        return self.kit.default_compression

    def disable_next_message_compression(self) -> None:
        """Send the next message uncompressed."""
        self.plain = False
        self._next_uncompressed = True

    def set_compression(self, compression: grpc.Compression) -> None:
        """Choose the compression of the whole call.

        Raises:
            RuntimeError: The initial metadata has been sent already.
        """
        if self.initial_metadata_sent:
            raise RuntimeError(
                "the compression must be set before the initial metadata or the first message "
                "is sent"
            )
        self.plain = False
        self.compression = compression_number(compression)

    # --- metadata and status ------------------------------------------------------------

    async def send_initial_metadata(self, initial_metadata: MetadataLike) -> None:
        """Send the response headers now.

        Raises:
            grpc.aio.UsageError: They have been sent already, or the call is over.
        """
        self.queue_initial_metadata(initial_metadata)

    def queue_initial_metadata(self, initial_metadata: MetadataLike) -> None:
        """Queue the response headers; what ``send_initial_metadata`` does, for any thread."""
        self.check_running()
        if self.initial_metadata_sent:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        pairs = to_wire(initial_metadata)
        self.plain = False
        self.initial_metadata_sent = True
        compression = self.compression
        if compression is None:
            compression = self.kit.default_compression
        if self.call.send_initial_metadata(pairs, compression):
            self.kit.flush()

    @counts_as_async
    def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: MetadataLike = (),
    ) -> Coroutine[Any, Any, NoReturn]:
        """End the call with ``code``, which must not be OK; to be awaited.

        Raises:
            grpc.aio.AbortError: Always; let it pass. A plain function gets it without ``await``.
        """
        return pend(self, self._queue_abort(code, details, trailing_metadata))

    @counts_as_async
    def abort_with_status(self, status: grpc.Status) -> Coroutine[Any, Any, NoReturn]:
        """End the call with code, details and trailing metadata of ``status``; see ``abort``."""
        error = self._queue_abort(status.code, status.details, status.trailing_metadata)
        return pend(self, error)

    def end_aborted(
        self, code: grpc.StatusCode, details: str, trailing_metadata: MetadataLike
    ) -> NoReturn:
        """Queue the status of an abort and raise; for any thread.

        Raises:
            TypeError: ``details`` is no text.
        """
        raise self._queue_abort(code, details, trailing_metadata)

    def _queue_abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: MetadataLike
    ) -> grpc.aio.AbortError:
        """Queue the status of an abort, and return what is to be raised."""
        if self.abort_error is not None:
            raise grpc.aio.UsageError("Abort already called!")
        pairs = to_wire(trailing_metadata) or self._trailing_metadata
        text = text_of_status(details) or self._details
        self.abort_error = grpc.aio.AbortError("Locally aborted.")
        self._code = code
        self._details = text
        self._trailing_metadata = pairs
        number = status_number(code)
        # An abort with OK is a mistake of the handler that no client should take for success.
        self.queue_status(number if number != 0 else 2)
        return self.abort_error

    def queue_status(self, number: int, message: rust.Payload | None = None) -> None:
        """Queue the end of the call, with a last message if there is one."""
        self.plain = False
        call = self.call
        queued = False
        if message is not None and (self.compression is not None or self._next_uncompressed):
            announced = self._announce_compression()
            queued = call.write(message, self.message_compression()) or announced
            message = None
        details = self._details
        if not details.isascii():  # Text that cannot be encoded must not keep the call open.
            details = details.encode("utf-8", "backslashreplace").decode()
        trailers = self._trailing_metadata
        if self._tells_request_id:
            trailers = (*trailers, ("request_id", self.request().request_id))
        if number != 0 and trailers:
            path = self.method.path
            details, trailers = self.kit.fitting_failure(call, path, details, trailers)
        must_flush = call.finish(number, details, trailers, message)
        # Not earlier: if the ring rejects the message, the failure must still be sent.
        self.finished = True
        if must_flush or queued:
            self.kit.flush()

    def set_code(self, code: grpc.StatusCode) -> None:
        """Choose the status code of the call's end."""
        self.plain = False
        self._code = code

    def code(self) -> grpc.StatusCode | int | None:
        """Return the code that was set, ``None`` if none was."""
        return self._code

    def set_details(self, details: str | None) -> None:
        """Choose the text of the call's status; ``None`` is an empty one.

        Raises:
            TypeError: It is no text.
        """
        text = text_of_status(details)
        self.plain = False
        self._details = text

    def details(self) -> str:
        """Return the text that was set."""
        return self._details

    def set_trailing_metadata(self, trailing_metadata: MetadataLike) -> None:
        """Choose the trailing metadata; replaces what was set before."""
        pairs = to_wire(trailing_metadata)
        self.plain = False
        self._trailing_metadata = pairs

    def trailing_metadata(self) -> WireMetadata:
        """Return the trailing metadata that was set."""
        return self._trailing_metadata

    def tell_request_id(self) -> None:
        """Add ``request_id`` to the trailing metadata, whatever else is set there."""
        self.plain = False
        self._tells_request_id = True

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        """Return the metadata that the client sent."""
        return received(self.call.metadata())

    # --- the peer -----------------------------------------------------------------------

    def peer(self) -> str:
        """Return the client's address, for instance ``ipv4:127.0.0.1:1234``."""
        return self.call.peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return what the transport knows of the client, with the names of grpc.

        ``transport_security_type`` (``ssl`` or ``insecure``) and ``security_level`` are always
        there, facts of the handshake with TLS, the names and the PEM of a client's certificate
        when it has shown one.
        """
        return self.call.auth_context()

    def peer_identity_key(self) -> str | None:
        """Return the property that names the client, ``None`` when nothing proves it."""
        known = self.call.auth_context()
        return next((key for key in _SSL_IDENTITY_KEYS if any(known.get(key, ()))), None)

    def peer_identities(self) -> Iterable[bytes] | None:
        """Return the proven names of the client, ``None`` when there are none."""
        key = self.peer_identity_key()
        return None if key is None else self.call.auth_context()[key]

    # --- life ---------------------------------------------------------------------------

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, ``None`` without one."""
        return self.call.time_remaining()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback(context)`` on the loop when the handler has ended.

        An exception of the callback goes to the loop's exception handler.
        """
        if self._done_callbacks is None:
            self._done_callbacks = []
        self.plain = False
        self._done_callbacks.append(callback)

    def cancelled(self) -> bool:
        """Tell whether the call was cut short: by its client, its deadline or the server's end."""
        return self.cancel_reason is not None or self._code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Tell whether the call is over, in whatever way."""
        return self.finished or self.ended or self.cancel_reason is not None

    def check_running(self) -> None:
        """Raise when nothing may be sent any more: the abort's error, else UsageError."""
        if self.abort_error is not None:
            raise self.abort_error
        if self.finished or self.cancel_reason is not None:
            raise grpc.aio.UsageError(RPC_FINISHED)

    def _need_stream(self) -> MessageStream:
        if not isinstance(self.stream, MessageStream):
            raise grpc.aio.UsageError(
                f"{self.method.path} takes one message: use the request instead of context.read()"
            )
        return self.stream


class SyncServicerContext(ServicerContext):
    """The context of a ``def`` handler: the same methods, none of them a coroutine.

    Without ``read`` and ``write``: such handlers iterate over requests and yield responses.
    """

    on_writable: Callable[[], None] | None = None

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        """Take one event of this call from the ring."""
        if kind == rust.WRITABLE and self.on_writable is not None:
            self.on_writable()
        else:
            super().on_event(kind, subject, payload)

    def send_initial_metadata(  # type: ignore[override]
        self, initial_metadata: MetadataLike
    ) -> None:
        """Send the response headers now."""
        self.queue_initial_metadata(initial_metadata)

    def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: MetadataLike = (),
    ) -> NoReturn:
        """End the call with ``code``; raises ``grpc.aio.AbortError``, which is to pass."""
        self.end_aborted(code, details, trailing_metadata)

    def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with code, details and trailing metadata of ``status``."""
        self.end_aborted(status.code, status.details, status.trailing_metadata)

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call ``callback()`` when the call has ended; ``False`` when it is over already."""
        if self.done():
            return False
        self.add_done_callback(lambda _context: callback())
        return True

    def is_active(self) -> bool:
        """Tell whether the client still waits."""
        return not self.done()


def _request_of(context: ServicerContext) -> Request:
    request_id = context.request_id
    model_id = ""
    for key, value in context.call.metadata():
        if key in _REQUEST_ID_KEYS and not request_id:
            request_id = str(value)
        elif key.replace("-", "_") in _MODEL_ID_KEYS:
            model_id = str(value)
    return Request(
        request_id=request_id,
        multiplexed_model_id=model_id,
        deadline=context.model_and_deadline()[1],
        application=context.kit.settings.application,
        deployment=context.kit.settings.deployment,
        method=context.method.path.rpartition("/")[2],
        # Only the calls of handles bring an id in their frame.
        is_root=not context.request_id,
    )


grpc.aio.ServicerContext.register(ServicerContext)
