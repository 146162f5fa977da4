"""One HTTP request of an ASGI application: ``receive``, ``send``, and completing the answer.

An answer whose body is one message is sent as one command. The head waits for the body until the
end of the loop's turn, and is then sent alone, so that a stream's client sees it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyserve.aio import ClientDisconnected
from pyserve.aio.internal import note_failure
from pyserve.bridge import end_if_forked, open_file
from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.replica.refusals import refusal_of

if TYPE_CHECKING:
    from pyserve.aio import HttpCall
    from pyserve.bridge import OpenFile
    from pyserve.replica.asgi.routes import RouteMeasures
    from pyserve.replica.asgi.scope import Application, Message, Scope
    from pyserve.replica.refusals import Refusal

_LOGGER = failure_logger(__name__)

# How long an application may take to end once its client is gone; then it is cancelled.
LEAVE_TIMEOUT_S = 10.0
# Their content-length is none of a body: with 304 it is that of the 200 which the client could
# have had (RFC 9110, 8.6 and 15.4.5), with 205 it has to be 0 (15.3.6). A client that sends CONNECT
# is refused by the ingress.
BODILESS = frozenset({204, 205, 304})
_SERVER_ERRORS = 500
HeaderList = list[tuple[bytes, bytes]]
_CONTENT_LENGTH = b"content-length"
PATHSEND = "http.response.pathsend"
# In such a message: a file that is open already, and the part of it that is to be sent.
FILE_PART = "pyserve.file_part"
FAILURE_BODY = b"Internal Server Error"
FAILURE_HEADERS = [
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", str(len(FAILURE_BODY)).encode()),
]


async def serve_http(
    app: Application, call: HttpCall, scope: Scope, measures: RouteMeasures | None = None
) -> None:
    """Run ``app`` for one request, and make sure that the request is answered.

    When the client leaves, ``receive`` and ``send`` say so, and the application has
    ``LEAVE_TIMEOUT_S`` to end. What it does after its last message is not limited.

    Args:
        app: The application.
        call: The request.
        scope: Of the request.
        measures: Counts it by its route; ``None``: it is not counted.

    Raises:
        asyncio.CancelledError: The application did not end in that time, or the deadline has
            passed before it began to answer.
    """
    call.allow_leave(LEAVE_TIMEOUT_S)
    exchange = HttpExchange(call, scope["method"])
    root_path, begun_at = scope["root_path"], perf_counter()
    try:
        result = await app(scope, exchange.receive, exchange.send)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        end_if_forked(error)
        # One request must not end the replica; signals end it.
        refusal = refusal_of(error)
        if refusal is not None and exchange.refuse(refusal):
            _LOGGER.debug("%s of a call became %d", type(error).__name__, refusal.status)
            return
        exchange.fail("the application raised %s", type(error).__name__, error=error)
    else:
        if result is not None:
            exchange.fail("the application returned %r, which has no meaning; return None", result)
        elif not exchange.ended and not call.is_over:
            exchange.fail(
                "the application returned without an answer's end", error=exchange.refused
            )
    finally:
        if measures is not None:
            measures.add(scope, root_path, exchange.status, perf_counter() - begun_at)


def pairs(headers: Iterable[Iterable[bytes]]) -> HeaderList:
    """Return the headers of an answer as the native side takes them.

    That side puts names in lower case and leaves out connection-specific headers.
    """
    return list(map(tuple, headers))  # type: ignore[arg-type]  # the native side counts them


def content_length(headers: HeaderList) -> int | None:
    """Return the length that an answer announces.

    Raises:
        RuntimeError: It is not a number of bytes, or there are two (RFC 9110, 8.6).
    """
    found = None
    for name, value in headers:
        if len(name) == len(_CONTENT_LENGTH) and name.lower() == _CONTENT_LENGTH:
            if not value.isdigit():
                text = value.decode("latin-1")
                raise RuntimeError(f"the answer's content-length is {text!r}, use digits alone")
            if found not in {None, value}:
                raise RuntimeError("the answer has two different headers content-length")
            found = value
    return None if found is None else int(found)


class HttpExchange:
    """Connects an application with one request.

    Args:
        call: The request.
        method: Its method.

    Attributes:
        ended: The answer's end was sent.
        refused: Why the answer's head could not be sent; ``None``: it was, or still waits.
        status: Of the answer; 0: there is none.
    """

    __slots__ = (
        "_all_read",
        "_bytes_left",
        "_call",
        "_has_head",
        "_has_no_body",
        "_head",
        "_is_cut",
        "_is_head",
        "_listener",
        "ended",
        "refused",
        "status",
    )

    def __init__(self, call: HttpCall, method: str) -> None:
        self._call = call
        self._all_read = False
        self._head: tuple[int, HeaderList] | None = None  # It waits for the body.
        self._has_head = False
        self._has_no_body = False
        self.ended = False
        self.status = 0
        self._bytes_left: int | None = None  # Of the body, by its content-length.
        self._is_head = method == "HEAD"
        self._listener: asyncio.Task[Any] | None = None  # It learns of a client that leaves.
        self._is_cut = False  # The client has left before its request was complete.
        self.refused: Exception | None = None

    # --- what the application calls -----------------------------------------------------

    async def receive(self) -> Message:
        """Return the next piece of the body, then ``http.disconnect`` when it is over."""
        call = self._call
        if not self._all_read:
            whole = call.whole_body
            if whole is not None:
                self._all_read = True
                return {"type": "http.request", "body": whole, "more_body": False}
            if not self.ended:
                with self._listening():
                    try:
                        piece = await call.read()
                    except ClientDisconnected:
                        self._is_cut = True
                        return {"type": "http.disconnect"}
                self._all_read = not piece
                return {"type": "http.request", "body": piece, "more_body": bool(piece)}
        with self._listening():
            await call.over()
        return {"type": "http.disconnect"}

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        before, self._listener = self._listener, asyncio.current_task()
        try:
            with self._call.listening():
                yield
        except asyncio.CancelledError:
            self._listener = before  # It was not told.
            raise

    async def send(self, message: Message) -> None:
        """Send the head or a piece of the body; waits while the client does not read.

        Answers that end by themselves may be sent to a client that has gone, and are discarded: an
        exception would make frameworks skip the application's work after its answers.

        Raises:
            OSError: The client has gone, more was to follow, of no announced length, and no other
                task of the application waits to be told by ``receive`` and to end the stream.
            RuntimeError: The message is not its turn, or does not fit the head.
        """
        kind = message["type"]
        if not self._has_head:
            if kind != "http.response.start":
                raise RuntimeError(f"expected 'http.response.start', the application sent {kind!r}")
            self._start(message["status"], message.get("headers", ()))
        elif self.ended:
            raise RuntimeError(f"the application sent {kind!r} after the answer's end")
        elif kind == PATHSEND:
            await self._send_file(message)
        elif kind != "http.response.body":
            raise RuntimeError(f"expected 'http.response.body', the application sent {kind!r}")
        else:
            body = message.get("body", b"")
            if type(body) is not bytes:
                body = bytes(body)
            more = message.get("more_body", False)
            if self._has_no_body:
                body = b""
            elif self._is_head:
                # Nobody wants a stream: what is sent of it ends the call as if its client had left.
                body = body if more else b""
            elif self._bytes_left is not None:
                self._count(len(body), more=more)
            head = self._head
            # A HEAD without a length must not get that of its missing body.
            if head is None or more or (self._is_head and self._bytes_left is None):
                await self._add(body, more=more)
            else:
                self._head = None
                self.ended = True
                self._call.respond(*head, body)

    def _start(self, status: int, headers: Iterable[Iterable[bytes]]) -> None:
        kept = pairs(headers)
        self._has_no_body = status in BODILESS
        self._bytes_left = content_length(kept)
        if status >= _SERVER_ERRORS and (error := sys.exc_info()[1]) is not None:
            # Frameworks answer before they let it through; the answer ends the call's span.
            note_failure(self._call.call, error)
        self._has_head = True
        self.status = status
        self._head = (status, kept)
        self._call.kit.at_turn_end(self._send_head_alone)

    def _count(self, size_bytes: int, *, more: bool) -> None:
        """Note a piece of a body whose length is announced.

        Raises:
            RuntimeError: It does not fit.
        """
        assert self._bytes_left is not None, "invariant: asked by the caller"
        self._bytes_left -= size_bytes
        if self._bytes_left < 0 or (self._bytes_left and not more):
            less = "longer" if self._bytes_left < 0 else "shorter"
            raise RuntimeError(f"the body is {less} than the answer's content-length")

    async def _add(self, body: bytes, *, more: bool) -> None:
        call = self._call
        if self.refused is not None:
            raise self.refused
        self._send_head()
        try:
            await call.write(body)
        except ClientDisconnected:
            is_endless = more and self._bytes_left is None and not self._has_no_body
            if is_endless and self._listener in {None, asyncio.current_task()}:
                raise
            await asyncio.sleep(0)  # The listener must get its turn.
        if not more:
            self.ended = True
            call.end()

    async def _send_file(self, message: Message) -> None:
        """Send a file as the rest of the body.

        Raises:
            OSError: It cannot be opened; the answer may still become another one.
            RuntimeError: It is shorter than announced, or became so.
        """
        # The head waits for the file, and must not go out at the turn's end.
        head, self._head = self._head, None
        file, offset, length = await self._part_of(message, head)
        self._head = head
        if self._bytes_left is not None:
            length = self._bytes_left
        elif head is not None:
            head[1].append((_CONTENT_LENGTH, str(length).encode()))
        self.ended = True
        if self._has_no_body or self._is_head or not length:
            file.close()
            await self._end_without_body()
            return
        try:
            self._send_head()
            await self._call.send_file(file, offset, length, message["path"])
        except ClientDisconnected:
            await asyncio.sleep(0)  # As after a piece.
        except BaseException:
            self.ended = False
            raise
        self._call.end()

    async def _part_of(
        self, message: Message, head: tuple[int, HeaderList] | None
    ) -> tuple[OpenFile, int, int]:
        try:
            part: tuple[OpenFile, int, int] | None = message.get(FILE_PART)
            if part is None:
                # On a thread: a file system of the network may let it wait.
                file = await asyncio.to_thread(open_file, message["path"])
                part = (file, 0, file.size_bytes)
            has_body = not self._has_no_body and not self._is_head
            if has_body and part[2] < (self._bytes_left or 0):
                part[0].close()
                raise RuntimeError("the file is shorter than the answer's content-length")
        except BaseException:
            self._has_head = head is None  # Nothing of the answer has been sent.
            raise
        return part

    async def _end_without_body(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            self._call.respond(*head, b"")
        else:
            self._call.end()

    def _send_head_alone(self) -> None:
        # The application does not wait for this; its next message is refused instead.
        with contextlib.suppress(Exception):
            self._send_head()

    def _send_head(self) -> None:
        head = self._head
        if head is not None:
            self._head = None
            try:
                self._call.start(*head)
            except Exception as error:
                self.refused = error
                raise

    def refuse(self, refusal: Refusal) -> bool:
        """Answer in the application's place; return whether that was still possible."""
        if self._has_head or self._call.is_over:
            return False
        self.ended = True
        self.status = refusal.status
        self._call.respond(
            refusal.status, refusal.headers(), b"" if self._is_head else refusal.body
        )
        return True

    # --- what is left when it has ended -------------------------------------------------

    def fail(self, text: str, *values: object, error: BaseException | None = None) -> None:
        """Log what went wrong; answer with 500, or break off an answer that has begun."""
        call = self._call
        if error is not None:
            note_failure(call.call, error)
        if self._is_cut or (call.is_over and not self.ended):
            # Often because the client has gone.
            _LOGGER.debug(text, *values, exc_info=exc_info_of(error))
            return
        path = call.head.target.partition(b"?")[0].decode("latin-1")
        # Clients choose the path, so it must not be part of the format string.
        _LOGGER.error(
            "%s %s: " + text, call.head.method, path, *values, exc_info=exc_info_of(error)
        )
        if self.ended:
            return
        self.ended = True
        if not self._has_head or self.refused is not None:
            self.status = 500
            call.respond(500, FAILURE_HEADERS, b"" if self._is_head else FAILURE_BODY)
        else:
            self._send_head()
            call.abort()
