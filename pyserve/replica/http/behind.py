"""Puts the operator's middlewares before a plain handler, which then answers as ASGI does.

Only where there are some: without them a request costs no scope and no ``send``. The handler
sees body, headers and scope as the middlewares pass them on. What it fails with, apart from
HTTP exceptions and bodies that do not fit, is worded by the native side and passes them by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from pyserve.aio import ClientDisconnected
from pyserve.aio.internal import BrokenFile
from pyserve.replica.asgi.http import FILE_PART, PATHSEND, serve_http
from pyserve.replica.asgi.middlewares import wrap
from pyserve.replica.asgi.scope import http_scope

if TYPE_CHECKING:
    from starlette.middleware import Middleware

    from pyserve.aio import HttpCall, HttpFields, HttpHandler, HttpHeaders
    from pyserve.bridge import OpenFile
    from pyserve.replica.asgi.scope import Message, Receive, Scope, Send

_CALL = "pyserve.call"
_PIECE_BYTES = 64 * 1024


def behind(handler: HttpHandler, middlewares: Sequence[Middleware]) -> HttpHandler:
    """Return a handler that lets requests pass the middlewares, the first of which is outermost.

    Args:
        handler: Answers plain HTTP requests.
        middlewares: Where there is none, the handler is returned.
    """
    if not middlewares:
        return handler

    async def innermost(scope: Scope, receive: Receive, send: Send) -> None:
        relayed = RelayedCall(scope[_CALL], scope, receive, send)
        relayed.on_leave(relayed.leave)
        try:
            await handler(cast("HttpCall", relayed))
        finally:
            relayed.task = None
        await relayed.deliver()

    built = wrap(innermost, middlewares)

    async def handle(http: HttpCall) -> None:
        if http.head.is_websocket:
            await handler(http)
            return

        async def outermost(scope: Scope, receive: Receive, send: Send) -> None:
            scope[_CALL] = http
            await built(scope, receive, send)

        await serve_http(outermost, http, http_scope(http, {}))

    return handle


class RelayedCall:
    """Stands in for an ``HttpCall`` behind middlewares; other attributes are the call's own.

    Args:
        http: The call.
        scope: As the innermost middleware has passed it on.
        receive: Gives the body.
        send: Takes the answer.

    Attributes:
        task: Runs the handler, until it has ended.
    """

    def __init__(self, http: HttpCall, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.whole_body: bytes | None = None
        self.started = False
        self.finished = False
        self._http = http
        self._receive = receive
        self._send = send
        self._has_all = False
        self.task = asyncio.current_task()
        self._may_leave = False
        # Messages from methods that are not coroutines, which ``deliver`` sends.
        self._queued: list[Message] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._http, name)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of the request."""
        found: list[tuple[bytes, bytes]] = self.scope["headers"]
        return found

    def head_fields(self) -> HttpFields:
        """See ``HttpCall.head_fields``."""
        return (*self._http.head_fields()[:-1], self.headers)

    def header(self, name: bytes) -> bytes | None:
        """See ``HttpCall.header``."""
        return next((value for key, value in self.headers if key == name), None)

    async def read(self) -> bytes:
        """See ``HttpCall.read``."""
        piece = b""
        while not piece and not self._has_all:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected("the client went before its request was complete")
            piece = message.get("body", b"")
            self._has_all = not message.get("more_body", False)
        return piece

    async def body(self) -> bytes:
        """See ``HttpCall.body``."""
        if self.whole_body is None:
            pieces = []
            while piece := await self.read():
                pieces.append(piece)
            self.whole_body = b"".join(pieces)
        return self.whole_body

    async def over(self) -> None:
        """See ``HttpCall.over``; the middlewares know of the wait."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @property
    def is_over(self) -> bool:
        """See ``HttpCall.is_over``."""
        return self.finished or self._http.is_over

    def respond(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        """See ``HttpCall.respond``."""
        if not self.is_over:
            self.start(status, headers)
            self._end(bytes(body))

    def start(self, status: int, headers: HttpHeaders) -> None:
        """See ``HttpCall.start``."""
        self.started = True
        lowered = [(name.lower(), value) for name, value in headers]
        self._queued.append({"type": "http.response.start", "status": status, "headers": lowered})

    async def write(self, data: bytes) -> None:
        """See ``HttpCall.write``."""
        if self._http.cancel_reason is not None:
            raise ClientDisconnected("the client has gone, or its deadline has passed")
        await self.deliver()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def send_file(self, file: OpenFile, offset: int, length: int, path: str) -> None:
        """See ``HttpCall.send_file``. The answer ends with it."""
        await self.deliver()
        try:
            if PATHSEND in self.scope.get("extensions", ()):
                part = (file, offset, length)
                await self._send({"type": PATHSEND, "path": path, FILE_PART: part})
                self.finished = True
            else:  # A middleware wants to see the body.
                await self._send_pieces(path, offset, length)
        finally:
            file.close()

    async def _send_pieces(self, path: str, offset: int, length: int) -> None:
        with await asyncio.to_thread(open, path, "rb") as file:
            file.seek(offset)
            while length:
                piece = await asyncio.to_thread(file.read, min(length, _PIECE_BYTES))
                if not piece:
                    raise BrokenFile(path, "the file has become shorter")
                length -= len(piece)
                await self.write(piece)

    def end(self) -> None:
        """See ``HttpCall.end``."""
        if not self.is_over:
            self._end(b"")
        elif not self.finished:
            self._http.end()  # There is no client left; it notes that the handler is done.

    def abort(self) -> None:
        """See ``HttpCall.abort``."""
        self.finished = True
        self._http.abort()

    def fail(self, *failure: Any) -> None:
        """See ``HttpCall.fail``."""
        self.finished = True
        self._http.fail(*failure)

    def allow_leave(self, timeout_s: float) -> None:
        """See ``HttpCall.allow_leave``."""
        self._may_leave = True
        self._http.allow_leave(timeout_s)

    def leave(self) -> None:
        """Cancel a handler that has not asked for time: middlewares get it, as under ASGI."""
        if not self._may_leave and self.task is not None:
            self.task.cancel()

    def _end(self, body: bytes) -> None:
        self.finished = True
        self._queued.append({"type": "http.response.body", "body": body, "more_body": False})

    async def deliver(self) -> None:
        """Send what is queued, unless the call has failed."""
        queued, self._queued = self._queued, []
        for message in queued:
            if not self._http.is_over:
                await self._send(message)
