"""Plain HTTP requests at the server: one object and one task for each of them.

What answers them is one ``HttpHandler`` of ``ServerSettings``: a plain function behind a parser
of bodies, or an ASGI application. This module knows neither; it carries bodies, cancellation
and the end of a request. ``_http_tasks`` runs the handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import grpc

from pyserve.aio._http_errors import BrokenFile, ClientDisconnected
from pyserve.aio._metadata import WireMetadata, status_number
from pyserve.aio._streams import MessageStream, is_unstarted
from pyserve.bridge import rust
from pyserve.request import Request

if TYPE_CHECKING:
    from pyserve.aio._handlers import CallKit
    from pyserve.bridge import OpenFile

HttpHeaders = Sequence[tuple[bytes, bytes]]
# As ``rust.HttpFields``: is_websocket, method, target's path as a text of Latin-1 (not decoded
# further), target's path, target's query, version, scheme, client, root_path, headers.
HttpFields = tuple[
    bool,
    str,
    str,
    bytes,
    bytes,
    str,
    str,
    tuple[str, int] | None,
    str,
    list[tuple[bytes, bytes]],
]

# Pieces a handler may write without a turn of the loop in between; as in ``_tasks``.
_PIECES_PER_TURN_MAX = 64
_MODEL_ID_NAMES = frozenset({b"serve_multiplexed_model_id", b"multiplexed_model_id"})
_METHOD = "__call__"
_INTERNAL = status_number(grpc.StatusCode.INTERNAL)


class HttpCall:
    """One plain HTTP request; made on the loop, and used there by the one task that answers it.

    It is answered once: with ``respond``, with ``start``, ``write`` and ``end``, or with
    ``fail``. Later calls of these, or calls after the client has gone, are ignored; only ``write``
    reports it.

    Attributes:
        call: The native call.
        token: Of the native call.
        kit: What the calls of its server share.
        whole_body: The body where it is there already, ``None`` where ``body`` has to wait for it.
        cancel_reason: One of ``rust.CANCEL_*`` once nobody waits for the answer.
        started: The head of the answer has been queued.
        finished: The end of the answer has been queued.
        task: Answers the request.
    """

    cancel_reason: int | None = None
    started = False
    finished = False
    task: asyncio.Task[None] | None = None
    _leave_timeout_s = 0.0
    _on_leave: Callable[[], None] | None = None
    _listeners = 0
    _leaving: asyncio.TimerHandle | None = None
    _is_read = False
    request_made: Request | None = None
    _head: rust.HttpHead | None = None
    _headers: list[tuple[bytes, bytes]] | None = None
    _stream: MessageStream | None = None
    _written = 0
    _waiters: list[asyncio.Future[None]] | None = None
    _over: asyncio.Event | None = None
    _done_callbacks: list[Callable[[HttpCall], None]] | None = None

    def __init__(self, token: int, call: rust.ServerCall, body: bytes | None, kit: CallKit) -> None:
        self.call = call
        self.token = token
        self.kit = kit
        self.whole_body = body
        if body is None:
            self._stream = MessageStream(call, kit.flush, kit.loop)

    # --- the request --------------------------------------------------------------------

    @property
    def head(self) -> rust.HttpHead:
        """The head of the request."""
        if self._head is None:
            self._head = self.call.http_head()
        return self._head

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the request, names in lower case; the same list every time."""
        if self._headers is None:
            self._headers = self.head.headers
        return self._headers

    def head_fields(self) -> HttpFields:
        """Return all of the head, cheaper than one by one; the headers are ``headers``."""
        fields = self.call.http_fields()
        if self._headers is not None:
            return (*fields[:-1], self._headers)
        self._headers = fields[-1]
        return fields

    def header(self, name: bytes) -> bytes | None:
        """Return the first header called ``name`` (in lower case), ``None`` without one."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    async def read(self) -> bytes:
        """Return the next piece of the body; ``b""`` at its end, or when ``body`` has it all.

        Raises:
            ClientDisconnected: The client went before it had sent everything.
        """
        stream = self._stream
        if stream is None:
            if self._is_read or self.whole_body is None:
                return b""
            self._is_read = True
            return self.whole_body
        piece = await stream.read_raw()
        while piece == b"":  # Says nothing, and would look like the end.
            piece = await stream.read_raw()
        if piece is not None:
            return piece
        if self.cancel_reason is not None:
            raise ClientDisconnected("the client went before its request was complete")
        return b""

    async def body(self) -> bytes:
        """Return all of the body; every time the same, unless ``read`` has taken some of it.

        Raises:
            ClientDisconnected: The client went before it had sent everything.
        """
        if self.whole_body is None:
            pieces = []
            while piece := await self.read():
                pieces.append(piece)
            self.whole_body = b"".join(pieces)
        self._is_read = True
        return self.whole_body

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline (never below 0), ``None`` without one."""
        return self.call.time_remaining()

    def request(self) -> Request:
        """Return the request that child calls inherit from; made on first use."""
        found = self.request_made
        if found is None:
            found = self.request_made = self._make_request()
            if self.cancel_reason is not None and not self._outlives_client():
                found.cancel()
        return found

    def model_and_deadline(self) -> tuple[str, float | None]:
        """Return these two of the request."""
        return self.request().model_and_deadline()

    def note_cost(self, cost: float) -> None:
        """Record what the call has cost so far, for the trailer that its router reads."""
        self.call.note_cost(cost)

    def _make_request(self) -> Request:
        request_id = model_id = ""
        for name, value in self.headers:
            if name == b"x-request-id" and not request_id:
                request_id = value.decode("latin-1")
            elif name.replace(b"-", b"_") in _MODEL_ID_NAMES:
                model_id = value.decode("latin-1")
        remaining_s = self.call.time_remaining()
        return Request(
            request_id=request_id,
            multiplexed_model_id=model_id,
            deadline=None if remaining_s is None else time.monotonic() + remaining_s,
            application=self.kit.settings.application,
            deployment=self.kit.settings.deployment,
            method=_METHOD,
            is_root=True,
        )

    # --- the answer ---------------------------------------------------------------------

    def respond(self, status: int, headers: HttpHeaders, body: rust.Payload) -> None:
        """Queue a whole answer. Names of headers may be in any case."""
        if not self.finished and self.cancel_reason is None:
            must_flush = self.call.respond(status, headers, body)
            # Not earlier: if the ring rejects the body, the failure must still be sent.
            self.started = self.finished = True
            if must_flush:
                self.kit.flush()
        self._note_end()

    def tell_start(self) -> None:
        """Tell the router that work on the request has begun, if it has asked to be told.

        Until then it may send the request to another replica, should this one be gone.
        """
        if not self.is_over and self.call.tell_start():
            self.kit.flush()

    def start(self, status: int, headers: HttpHeaders) -> None:
        """Queue the head of an answer, whose body ``write`` adds."""
        if not self.is_over:
            must_flush = self.call.start_response(status, headers)
            self.started = True
            if must_flush:
                self.kit.flush()

    async def write(self, data: bytes) -> None:
        """Queue a piece of the body; waits while the client does not read.

        Raises:
            ClientDisconnected: Nobody reads any more.
        """
        self._check_client()
        if not data:
            return
        if self.call.write(data, rust.IDENTITY):
            self.kit.flush()
        self._written += 1
        if not self.call.writable():
            if self._stream is None:
                self._stream = self._read_stream()
            await self._stream.wait_writable()
            self._check_client()
        elif self._written == 1 or self._written % _PIECES_PER_TURN_MAX == 0:
            # The first one leaves before the handler works on the second.
            await asyncio.sleep(0)

    async def send_file(self, file: OpenFile, offset: int, length: int, path: str) -> None:
        """Queue a part of a file as a piece of the body; waits until it was sent and closed.

        Raises:
            ClientDisconnected: Nobody reads any more.
            BrokenFile: Not all of it was sent; the answer is to be aborted.
        """
        try:
            self._check_client()
            if self.call.send_file(file, offset, length):
                self.kit.flush()
            if self._stream is None:
                self._stream = self._read_stream()
            await self._stream.wait_writable()
            self._check_client()
        finally:
            file.close()  # Unless the native side has it.
        if (error := self.call.file_error) is not None:
            raise BrokenFile(path, error)

    def end(self) -> None:
        """Queue the end of a body that was started."""
        self._finish(0, "", ())

    def abort(self) -> None:
        """Break the body off, so that the client sees that the answer is not complete."""
        self._finish(_INTERNAL, "", ())

    def fail(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: WireMetadata = ()
    ) -> None:
        """End the request with a failure.

        The client gets the HTTP status that stands for ``code``, and ``details`` as the body;
        after ``start`` it sees a broken answer instead.
        """
        self._finish(status_number(code), details, trailing_metadata)

    def refuse(self) -> None:
        """Queue the answer of a request that has not started: a router sends it elsewhere."""
        if not self.is_over:
            self.finished = True
            if self.call.refuse():
                self.kit.flush()
        self._note_end()

    def _finish(self, number: int, details: str, trailing_metadata: WireMetadata) -> None:
        if not self.is_over:
            self.finished = True
            if not details.isascii():  # Text that cannot be encoded must not keep the call open.
                details = details.encode("utf-8", "backslashreplace").decode()
            if number != 0 and trailing_metadata:
                path = self.head.target.partition(b"?")[0].decode("latin-1")
                trailing_metadata = self.kit.fitting_trailers(path, trailing_metadata)
            if self.call.finish(number, details, trailing_metadata, None):
                self.kit.flush()
        self._note_end()

    def _note_end(self) -> None:
        self._note_over()
        if self._leaving is not None:
            # Work after an answer is not limited, whether somebody reads the answer or not.
            self._leaving.cancel()

    def _read_stream(self) -> MessageStream:
        """Return a stream for the waits of ``write``, of a request that came whole."""
        stream = MessageStream(self.call, self.kit.flush, self.kit.loop)
        if self.whole_body and not self._is_read:
            stream.messages.append(self.whole_body)
        stream.half_closed = True
        return stream

    # --- the client ---------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Nothing can be sent any more: the answer has ended, or nobody waits for it."""
        return self.finished or self.cancel_reason is not None

    async def disconnected(self) -> None:
        """Return when the client is gone or the deadline has passed."""
        if self.cancel_reason is not None:
            return
        if self._waiters is None:
            self._waiters = []
        waiter: asyncio.Future[None] = self.kit.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def over(self) -> None:
        """Return when the answer has ended, or when it is of no use any more.

        That is when ``disconnected`` returns, unless the client wished its request finished.
        """
        if self._over is None:
            self._over = asyncio.Event()
            if self.is_over and not self._outlives_client():
                self._over.set()
        await self._over.wait()

    def allow_leave(self, timeout_s: float) -> None:
        """Give the handler time to end when nobody waits for its answer any more.

        Without this it is cancelled at once; with it, too, if its deadline passes before it has
        begun to answer. Its child calls are cancelled at once unless it listens.

        Args:
            timeout_s: How long it may go on; it is cancelled then, unless it has sent its end.
        """
        self._leave_timeout_s = timeout_s

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when that time begins, at once if it has; the last one counts."""
        self._on_leave = callback
        if self._leaving is not None:
            callback()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Mark that the handler waits for its client to leave.

        Its child calls are left to it then, and cancelled when its time is over.
        """
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    def _note_over(self) -> None:
        if self._over is not None:
            self._over.set()

    def _check_client(self) -> None:
        if self.cancel_reason is not None:
            raise ClientDisconnected("the client has gone, or its deadline has passed")

    def _outlives_client(self) -> bool:
        """Return whether the client asked to finish its request even if it goes away."""
        if self.cancel_reason != rust.CANCEL_CLIENT:
            return False
        wish = self.header(b"x-request-disconnect-disabled")
        return wish is not None and wish.strip() == b"?1"

    # --- life ---------------------------------------------------------------------------

    def on_event(self, kind: int, subject: object, payload: object) -> None:
        """Take one event of this request from the ring."""
        if kind == rust.CANCEL:
            self._on_cancel(int(subject))  # type: ignore[call-overload]
        elif self._stream is not None:
            self._stream.on_event(kind, payload)

    def _on_cancel(self, reason: int) -> None:
        self.cancel_reason = reason
        if self._stream is not None:
            self._stream.wake_all()
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        if self._outlives_client():
            # The native side watches only requests that somebody waits for.
            if (remaining_s := self.call.time_remaining()) is not None:
                self._later(remaining_s)
        elif self._may_tidy_up(reason):
            self._tell_leave()
        else:
            self._cancel()

    def _may_tidy_up(self, reason: int) -> bool:
        """Return whether the handler gets time to end.

        It does not get it at a deadline, since it has had its time, unless it is answering.
        """
        if not self._leave_timeout_s or reason == rust.CANCEL_SHUTDOWN:
            return False
        # The router watches the deadline too, and leaves as a client does.
        is_late = reason == rust.CANCEL_DEADLINE or self.call.time_remaining() == 0.0
        return self.started or not is_late

    def _tell_leave(self) -> None:
        self._note_over()
        if not self._listeners and self.request_made is not None:
            self.request_made.cancel()
        if not self.finished:
            self._leaving = self._later(self._leave_timeout_s)
            if self._on_leave is not None:
                self._on_leave()

    def _later(self, delay_s: float) -> asyncio.TimerHandle:
        timer = self.kit.loop.call_later(delay_s, self._cancel)
        self.add_done_callback(lambda _: timer.cancel())
        return timer

    def _cancel(self) -> None:
        self._note_over()
        if self.request_made is not None:
            self.request_made.cancel()
        task = self.task
        if task is None or self.finished:
            return
        if is_unstarted(task):
            task.add_done_callback(lambda _: self.release())
        task.cancel()

    def stop(self) -> None:
        """Cancel what a handler still does after its answer or its client: the server ends.

        Requests whose client waits for an answer get a CANCEL event instead.
        """
        if (self.finished or self._leaving is not None) and self.task is not None:
            self.task.cancel()

    def abandon(self) -> None:
        """The loop closes; stopping the server has ended the request."""
        self.cancel_reason = rust.CANCEL_SHUTDOWN
        self._note_over()
        if self._stream is not None:
            self._stream.wake_all()

    def add_done_callback(self, callback: Callable[[HttpCall], None]) -> None:
        """Call ``callback(self)`` on the loop when the handler has ended; it must not raise."""
        if self._done_callbacks is None:
            self._done_callbacks = []
        self._done_callbacks.append(callback)

    def release(self) -> None:
        """Let go of a request whose handler has ended."""
        self.task = None  # Its context holds this object: a cycle that only the collector frees.
        self._on_leave = None  # As well.
        self.kit.receivers.pop(self.token, None)
        if self.cancel_reason is not None and self.call.release():
            self.kit.flush()
        if self._done_callbacks is not None:
            for callback in self._done_callbacks:
                callback(self)
            self._done_callbacks = None
        if self.request_made is not None:
            self.request_made.end()


HttpHandler = Callable[[HttpCall], Awaitable[None]]
"""Answers one request.

It runs as a task with ``pyserve.request.CURRENT`` set to the request. The task is cancelled when
the client goes away or the deadline passes, unless it has called ``allow_leave``. If it raises, or
ends without an answer, the answer is 500 and the failure is logged.
"""
