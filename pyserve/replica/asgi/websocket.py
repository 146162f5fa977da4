"""One WebSocket of an ASGI application.

The ingress handles the HTTP of the handshake; only the frames of RFC 6455, which wsproto reads and
writes, pass here. Three tasks run concurrently: the application, a reader that answers pings while
the application does something else, and the keepalive.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from grpc import StatusCode
from wsproto import events
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.extensions import Extension
from wsproto.utilities import LocalProtocolError

from pyserve.aio import ClientDisconnected
from pyserve.aio.internal import note_failure
from pyserve.bridge import end_if_forked
from pyserve.observe.failures import failure_logger
from pyserve.replica.asgi.deflate import AnnouncedSize, agree
from pyserve.replica.asgi.http import (
    FAILURE_BODY,
    FAILURE_HEADERS,
    LEAVE_TIMEOUT_S,
    HeaderList,
    pairs,
)
from pyserve.replica.asgi.inbox import Inbox, MessageTooLarge
from pyserve.replica.asgi.scope import values_of, websocket_scope

if TYPE_CHECKING:
    from pyserve.aio import HttpCall
    from pyserve.replica.asgi.scope import Application, Message
    from pyserve.replica.asgi.turns import Turns

_LOGGER = failure_logger(__name__)

# The numbers are uvicorn's.
_MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_PING_INTERVAL_S = 20.0
_PONG_TIMEOUT_S = 20.0
_CLOSE_TIMEOUT_S = 10.0  # for the client's answer to a close
# How many frames are read before others get their turn: a tenth of a millisecond, plus the
# application's time for their messages. Arbitrary.
_FRAMES_PER_TURN = 8
# 16 MiB in fragments of 256 bytes each.
_MESSAGE_FRAMES_MAX = 65_536
# Compressed input is fed in pieces of this size: one of them becomes 4 MiB at most.
_PIECE_BYTES_MAX = 4096
# It may be longer than what it becomes, in small fragments above all; that has its own limit.
_COMPRESSED_PART_MAX = 2

_NORMAL = 1000
_ABNORMAL = 1006
_POLICY = 1008
_TOO_LARGE = 1009
_INTERNAL = 1011
_RESTART = 1012
# RFC 6455, 7.4, and IANA's registry: what may stand in a frame. The others are reserved, or say
# that there was none; clients take a frame that has one for a violation of the protocol.
_CODES = frozenset({*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)})
# The headers of a handshake's answer that only the server can know, and one that would end the
# WebSocket as a body of this length ends.
_NOT_OF_APPLICATIONS = (b"sec-websocket-", b"content-length")
_PROTOCOL = b"sec-websocket-protocol"
_DENIALS = range(300, 600)


class _State(enum.Enum):
    CONNECTING = "the application has neither accepted nor denied"
    DENYING = "the answer to the handshake is under way"
    OPEN = "messages go both ways"
    CLOSING = "our close was sent"
    CLOSED = "nothing can be sent any more"


class WebSocketSession:
    """One WebSocket, from the handshake to the close.

    Args:
        app: The application.
        call: The request that carries it.
        state: What the lifespan has left.
        turns: The queue for WebSockets that have much to read.
    """

    def __init__(
        self, app: Application, call: HttpCall, state: dict[str, Any], turns: Turns
    ) -> None:
        self._app = app
        self._call = call
        self._turns = turns
        self._frames_left = _FRAMES_PER_TURN
        self._scope = websocket_scope(call, state)
        self._state = _State.CONNECTING
        self._closed_by_us = False  # And not by the application, which is notified.
        self._connection: Connection | None = None
        self._is_compressed = False
        self._announced: AnnouncedSize | None = None
        self._inbox = Inbox(_MESSAGE_BYTES_MAX)
        self._inbox.put({"type": "websocket.connect"})
        self._closed = asyncio.Event()  # The client has closed, or is gone.
        self._ponged = asyncio.Event()
        self._ping: bytes | None = None
        # Until then the client has sent something, or the reader waited and a pong may have lain
        # unread.
        self._heard_until = -math.inf
        self._denial: tuple[int, list[tuple[bytes, bytes]]] | None = None
        self._helpers: list[asyncio.Task[None]] = []
        self._is_draining = False
        self._is_stuck = False  # A close could not be sent.
        self._has_failed = False  # The application, by an exception.

    async def run(self) -> None:
        """Run the application until it has ended and the WebSocket is closed.

        Raises:
            asyncio.CancelledError: The client has gone without a close.
        """
        application = asyncio.create_task(self._run_application())
        closed = self._help(self._closed.wait())
        try:
            await asyncio.wait({application, closed}, return_when=asyncio.FIRST_COMPLETED)
            await _end(application)
            await self._close_for_application(application)
            if self._state is _State.CLOSING:
                await asyncio.wait({closed}, timeout=_CLOSE_TIMEOUT_S)
        except asyncio.CancelledError:
            self._lose()
            await _end(application)
            raise
        finally:
            self._state = _State.CLOSED
            for helper in self._helpers:
                helper.cancel()
            # Their tracebacks refer to this session: it would wait for the garbage collector, with
            # all that the application has put into its scope.
            self._helpers.clear()
        if self._is_stuck:  # What has been sent is not read, so an end behind it would not be.
            self._call.fail(StatusCode.CANCELLED, "the client of a WebSocket does not read")
        else:
            self._call.end()

    def drain(self) -> None:
        """Close with 1012, which tells clients to reconnect; another replica takes them."""
        self._is_draining = True
        if self._state is _State.OPEN:
            self._help(self._close_ourselves(_RESTART, ""))

    async def _run_application(self) -> None:
        try:
            result = await self._app(self._scope, self._receive, self._send)
        except ClientDisconnected:
            pass  # It sent to a client that has gone, and did not mind.
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            end_if_forked(error)
            self._has_failed = True
            note_failure(self._call.call, error)
            _LOGGER.exception(
                "the application raised %s in WebSocket %s", type(error).__name__, self
            )
        else:
            if result is not None:
                _LOGGER.error("the application returned %r from WebSocket %s", result, self)
            elif self._state is _State.CONNECTING:
                _LOGGER.error("the application left WebSocket %s without an answer", self)
        if self._state is _State.CONNECTING:
            self._call.respond(500, FAILURE_HEADERS, FAILURE_BODY)
        elif self._state is _State.DENYING:
            self._call.abort()

    # --- what the application calls -----------------------------------------------------

    async def _receive(self) -> Message:
        return await self._inbox.get()

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if self._state is _State.CLOSED or self._closed_by_us:
            raise ClientDisconnected("the WebSocket is closed")
        if self._state is _State.CONNECTING:
            await self._answer_handshake(kind, message)
        elif self._state is _State.DENYING:
            await self._add_to_denial(kind, message)
        elif self._state is _State.CLOSING:
            raise RuntimeError(f"the application sent {kind!r} after 'websocket.close'")
        elif kind == "websocket.send":
            data = message.get("bytes")
            text = message.get("text")
            await self._write(events.Message(data=text if data is None else bytes(data)))  # type: ignore[type-var]
        elif kind == "websocket.close":
            code, reason = message.get("code", 1000), message.get("reason") or ""
            if code is not None and code not in _CODES:
                raise RuntimeError(
                    f"the application closed with the code {code!r}, which no frame may have; "
                    f"use 3000 to 4999, or a registered one: 1000 to 1003 or 1007 to 1014"
                )
            self._inbox.finish(code, reason)
            await self._close(code, reason)
        else:
            raise RuntimeError(
                f"expected 'websocket.send' or 'websocket.close', the application sent {kind!r}"
            )

    async def _answer_handshake(self, kind: str, message: Message) -> None:
        if kind == "websocket.accept":
            self._accept(message)
        elif kind == "websocket.close":
            self._inbox.finish(_ABNORMAL)
            self._state = _State.CLOSED
            self._call.respond(403, [(b"content-length", b"0")], b"")
        elif kind == "websocket.http.response.start":
            headers, status = pairs(message.get("headers", ())), message["status"]
            if status not in _DENIALS:
                raise RuntimeError(
                    f"the application denied a WebSocket with the status {status!r}, which does "
                    f"not say so over HTTP/2; use one from 300 to 599"
                )
            self._denial = (status, headers)
            self._state = _State.DENYING
        else:
            raise RuntimeError(
                f"expected 'websocket.accept', 'websocket.close' or "
                f"'websocket.http.response.start', the application sent {kind!r}"
            )

    async def _add_to_denial(self, kind: str, message: Message) -> None:
        if kind != "websocket.http.response.body":
            raise RuntimeError(
                f"expected 'websocket.http.response.body', the application sent {kind!r}"
            )
        head, self._denial = self._denial, None
        body, more = bytes(message.get("body", b"")), message.get("more_body", False)
        if not more:
            self._inbox.finish(_ABNORMAL)
            self._state = _State.CLOSED
            if head is not None:
                self._call.respond(*head, body)
                return
        elif head is not None:
            self._call.start(*head)
        await self._call.write(body)
        if not more:
            self._call.end()

    def _accept(self, message: Message) -> None:
        given = pairs(message.get("headers", ()))
        headers = [each for each in given if not _is_own(each[0])]
        subprotocol = self._subprotocol(message.get("subprotocol"), given)
        if subprotocol is not None:
            headers.append((_PROTOCOL, subprotocol.encode("latin-1")))
        deflate = agree(values_of(self._scope["headers"], b"sec-websocket-extensions"))
        if deflate is not None:
            headers.append((b"sec-websocket-extensions", deflate.answer))
        self._is_compressed = deflate is not None
        self._call.start(200, headers)
        part_max = _COMPRESSED_PART_MAX if self._is_compressed else 1
        self._announced = AnnouncedSize(_MESSAGE_BYTES_MAX * part_max, _MESSAGE_FRAMES_MAX)
        extensions: list[Extension] = [] if deflate is None else [deflate]
        self._connection = Connection(ConnectionType.SERVER, [*extensions, self._announced])
        self._state = _State.OPEN
        self._help(self._read())
        self._help(self._keep_alive())
        if self._is_draining:
            self.drain()

    def _subprotocol(self, chosen: str | None, headers: HeaderList) -> str | None:
        """Return what the application has chosen, as ASGI says it or by a header of its own.

        Raises:
            RuntimeError: It has chosen two, or one that the client does not know.
        """
        given = [value for name, value in headers if name.lower() == _PROTOCOL]
        named = {value.strip().decode("latin-1") for value in given}
        named |= set() if chosen is None else {chosen}
        if len(named) > 1:
            raise RuntimeError(f"the application accepted two subprotocols: {sorted(named)}")
        unknown = named.difference(self._scope["subprotocols"])
        if unknown:
            raise RuntimeError(f"the client did not offer the subprotocol {unknown.pop()!r}")
        return next(iter(named), None)

    def _help(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        async def help_out() -> None:
            with contextlib.suppress(ClientDisconnected):  # The application is told.
                await work

        helper = asyncio.create_task(help_out())
        self._helpers.append(helper)
        return helper

    # --- what is sent -------------------------------------------------------------------

    async def _write(self, event: events.Event) -> None:
        connection = self._connection
        assert connection is not None, "invariant: it is open"
        try:
            frame = connection.send(event)
        except LocalProtocolError as error:
            raise ClientDisconnected("the client has closed the WebSocket") from error
        await self._call.write(frame)

    async def _close(self, code: int, reason: str) -> None:
        self._state = _State.CLOSING
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._write(events.CloseConnection(code=code, reason=reason))
        except TimeoutError:  # The client does not read, and perhaps never will.
            self._is_stuck = True
            self._lose()

    async def _close_for_application(self, application: asyncio.Task[None]) -> None:
        """Close a WebSocket that the application has left open."""
        if self._state is _State.OPEN:
            has_failed = self._has_failed or application.cancelled()
            with contextlib.suppress(ClientDisconnected):
                await self._close(_INTERNAL if has_failed else _NORMAL, "")

    async def _close_ourselves(self, code: int, reason: str, told: int | None = None) -> None:
        """Close a WebSocket on the server's own account, and notify the application."""
        if self._state is _State.OPEN:
            self._closed_by_us = True
            self._inbox.finish(code if told is None else told, reason)
            await self._close(code, reason)
            # Apart: the reader may be what closes, and the client's close comes through it.
            self._help(self._await_close())

    async def _await_close(self) -> None:
        """End a WebSocket whose client does not answer our close: it may have vanished."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._closed.wait()
        self._lose()

    # --- what comes ---------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while not self._closed.is_set():
                piece = await self._call.read()
                if not piece:
                    break
                # No pong can come within a frame (RFC 6455, 5.4), and a large one takes its time.
                self._heard_until = asyncio.get_running_loop().time()
                await self._feed(piece)
                await self._wait_for_room()  # So a client cannot send more than is read.
        except ClientDisconnected:
            pass
        self._lose()

    async def _feed(self, data: bytes) -> None:
        connection = self._connection
        assert connection is not None, "invariant: it is open"
        size = _PIECE_BYTES_MAX if self._is_compressed else len(data)
        for offset in range(0, len(data), size):
            if connection.state not in {ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING}:
                return
            connection.receive_data(data[offset : offset + size])
            for event in connection.events():
                await self._on_event(event)
                self._frames_left -= 1
                if not self._frames_left:
                    await self._give_way()

    async def _give_way(self) -> None:
        """Let others go first, and the application take what has come."""
        self._frames_left = _FRAMES_PER_TURN
        await self._turns.next()
        await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        if self._state is _State.OPEN and self._inbox.is_full:
            self._heard_until = math.inf
            await self._inbox.room()
            self._heard_until = asyncio.get_running_loop().time()

    async def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.CloseConnection):
            await self._on_close(event)
        elif self._state is not _State.OPEN:
            return
        elif isinstance(event, events.TextMessage | events.BytesMessage):
            try:
                self._inbox.add(event.data, is_last=event.message_finished)
            except MessageTooLarge:
                await self._close_ourselves(_TOO_LARGE, _refusal_text(_TOO_LARGE))
        elif isinstance(event, events.Ping):
            await self._write(event.response())
        elif isinstance(event, events.Pong) and bytes(event.payload) == self._ping:
            self._ponged.set()

    async def _on_close(self, event: events.CloseConnection) -> None:
        if self._state is _State.OPEN:
            self._state = _State.CLOSED
            refusal = None if self._announced is None else self._announced.refusal
            if refusal is not None:
                event = events.CloseConnection(code=refusal, reason=_refusal_text(refusal))
            self._inbox.finish(int(event.code), event.reason)
            self._closed.set()
            # Also what wsproto makes of frames that break the protocol; that is ours to say.
            await self._write(event.response())
            self._call.end()
        self._closed.set()

    def _lose(self) -> None:
        """Nothing comes any more, and there was no close (RFC 6455, 7.1.5)."""
        self._inbox.finish(_ABNORMAL)
        self._state = _State.CLOSED
        self._closed.set()

    async def _keep_alive(self) -> None:
        round_trip_s = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.0, _PING_INTERVAL_S - round_trip_s))
            if self._state is not _State.OPEN:
                return
            sent_at = loop.time()
            self._ping = secrets.token_bytes(4)
            self._ponged.clear()
            try:
                async with asyncio.timeout(_PONG_TIMEOUT_S):
                    await self._write(events.Ping(payload=self._ping))
                    await self._ponged.wait()
            except TimeoutError:
                # A client that sends, or whose pong has not been read yet, has not vanished.
                if loop.time() - self._heard_until >= _PONG_TIMEOUT_S:
                    reason = "keepalive ping timeout"
                    await self._close_ourselves(_INTERNAL, reason, told=_ABNORMAL)
                    return
            round_trip_s = loop.time() - sent_at

    def __str__(self) -> str:
        return str(self._scope["path"])


def _is_own(name: object) -> bool:
    # The native side refuses what is not bytes.
    return isinstance(name, bytes) and name.lower().startswith(_NOT_OF_APPLICATIONS)


def _refusal_text(code: int) -> str:
    if code == _POLICY:
        return f"Message has more than {_MESSAGE_FRAMES_MAX} fragments"
    return f"Message exceeds the maximum size ({_MESSAGE_BYTES_MAX} bytes)"


async def _end(application: asyncio.Task[None]) -> None:
    """Give an application whose WebSocket is closed the time to end; then cancel it.

    It was notified, as under any server, and may have to clean up.
    """
    if application.done():
        return
    await asyncio.wait({application}, timeout=LEAVE_TIMEOUT_S)
    application.cancel()
    await asyncio.wait({application})
