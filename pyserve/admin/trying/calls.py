"""The running calls from the page, and their events as they come."""

from __future__ import annotations

import asyncio
import base64
import codecs
import secrets
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import h11

from pyserve.admin.trying.wanted import END, Envelopes
from pyserve.config import local_host
from pyserve.errors import PyserveError, UsageError

if TYPE_CHECKING:
    from pyserve.admin.context import Door
    from pyserve.admin.trying.wanted import Wanted

Event = tuple[str, dict[str, Any]]
# Enough for an answer on a screen; anything beyond it ends the call.
_ANSWER_BYTES_MAX = 1 << 20
# People try one method at a time; a few of them may sit in front of one page.
_TRIES_MAX = 4
# Added to the call's own timeout for the way to the ingress and back.
_MARGIN_S = 2.0
# Of headers, those that say something about the call; others may be of user code.
_SHOWN = (
    *("content-type", "location", "x-request-id", "x-pyserve-request-id", "x-pyserve-explain"),
    "x-pyserve-error",
)
_TEXTS = ("text/", "application/json", "application/x-ndjson", "application/xml")
_BROKEN = (OSError, h11.ProtocolError)


class TooManyTries(PyserveError):
    """The largest number of running calls has been reached."""


class DoorClosed(PyserveError):
    """The ingress cannot be reached."""


class Tries:
    """Calls methods, a few at a time. For one event loop."""

    def __init__(self) -> None:
        self._places = 0
        self._open: dict[str, Exchange] = {}

    async def call(self, door: Door, wanted: Wanted) -> AsyncGenerator[Event, None]:
        """Call a method; yield its events. Closing the iterator cancels the call.

        The first event is ``begun`` with the id of the call. Then come ``head``, the answer as
        ``piece`` after ``piece`` or, of a stream of messages, as ``message`` after ``message`` and
        a ``status``; at last ``end``, or ``broken`` with a reason.

        Raises:
            TooManyTries: At once.
            DoorClosed: Nothing answers there.
        """
        if self._places >= _TRIES_MAX:
            raise TooManyTries(f"{_TRIES_MAX} calls are under way already; wait for one of them")
        self._places += 1
        call_id = secrets.token_urlsafe(9)
        exchange: Exchange | None = None
        try:
            try:
                async with asyncio.timeout(wanted.timeout_s):
                    exchange = await Exchange.begin(door, wanted)
            except _BROKEN as error:
                text = f"the ingress at {door.address} gave no answer: {error!r}"
                raise DoorClosed(text) from error
            if wanted.has_more:
                self._open[call_id] = exchange
            yield "begun", {"call": call_id}
            async with aclosing(_answer(exchange, wanted)) as events:
                async for event in events:
                    yield event
        finally:
            self._places -= 1
            self._open.pop(call_id, None)
            if exchange is not None:
                exchange.close()

    async def send(self, call_id: str, data: bytes) -> None:
        """Send one more message, in its envelope; ``b""``: end of the messages.

        Raises:
            UsageError: There is no such call, or none that takes more.
            DoorClosed: Its connection is gone.
        """
        exchange = self._open.get(call_id)
        if exchange is None:
            raise UsageError(f"no call {call_id} takes messages; it may have ended")
        try:
            if data:
                await exchange.send(data)
            else:
                del self._open[call_id]
                await exchange.end()
        except _BROKEN as error:
            raise DoorClosed(f"the call has ended: {error!r}") from error


async def _answer(exchange: Exchange, wanted: Wanted) -> AsyncGenerator[Event, None]:
    """Yield what the ingress answers, from its head to its end."""
    began = time.perf_counter()
    deadline = asyncio.get_running_loop().time() + wanted.timeout_s + _MARGIN_S
    last: str = "end"
    more: dict[str, Any] = {}
    try:
        async with asyncio.timeout_at(deadline):
            head = await exchange.head()
        # Connect puts trailers of calls with one answer among its headers.
        headers = {
            name.decode().removeprefix("trailer-"): value.decode("latin-1")
            for name, value in head.headers
        }
        shown = {name: headers[name] for name in _SHOWN if name in headers}
        yield "head", {"status": head.status_code, "headers": shown}
        reader = _reader(headers.get("content-type", ""))
        left = _ANSWER_BYTES_MAX
        while data := await _read(exchange, deadline):
            for event in reader.feed(data[:left]):
                yield event
            left -= len(data)
            if left < 0:
                more = {"is_cut": True}
                break
    except TimeoutError:
        last, more = "broken", {"reason": f"no end within {wanted.timeout_s:g} s"}
    except _BROKEN as error:
        last, more = "broken", {"reason": f"the answer broke off: {error}"}
    yield last, {**more, "took_s": round(time.perf_counter() - began, 6)}


async def _read(exchange: Exchange, deadline: float) -> bytes:
    # The limit must not stand across a yield: its time is the page's.
    async with asyncio.timeout_at(deadline):
        return await exchange.read()


def _reader(content_type: str) -> _Messages | _Pieces:
    if content_type.startswith("application/connect+"):
        return _Messages()
    essence = content_type.partition(";")[0].strip().lower()
    is_text = not essence or essence.startswith(_TEXTS) or essence.endswith(("+json", "+xml"))
    return _Pieces(is_text=is_text)


class _Messages:
    """Reads the messages of a stream, and how it has ended."""

    def __init__(self) -> None:
        self._envelopes = Envelopes()

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield what is whole now."""
        for flags, content in self._envelopes.feed(data):
            text = content.decode(errors="replace")
            yield "status" if flags & END else "message", {"text": text}


class _Pieces:
    """Reads a body as it comes: texts, or bytes as base64."""

    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield what can be shown now."""
        if not self._is_text:
            yield "piece", {"base64": base64.b64encode(data).decode()}
        elif text := self._decoder.decode(data):
            yield "piece", {"text": text}


# One request to the ingress over HTTP/1.1, whose body and answer go at the same time.

_READ_BYTES = 64 << 10
# Explanations of calls are long headers.
_HEAD_BYTES_MAX = 1 << 20


class Exchange:
    """A connection with one request; ``close`` ends it, which cancels the call.

    Args:
        reader: What the ingress says.
        writer: What it is told.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)

    @classmethod
    async def begin(cls, door: Door, wanted: Wanted) -> Exchange:
        """Connect, and send all that there is of the request.

        Raises:
            OSError: Nobody answers there.
        """
        host, _, port = door.address.rpartition(":")
        host = local_host(host.strip("[]"))
        context = _context() if door.speaks_tls else None
        opened = await asyncio.open_connection(host, int(port), ssl=context)
        exchange = cls(*opened)
        try:
            await exchange._send_request(door, wanted)
        except BaseException:
            exchange.close()
            raise
        return exchange

    async def _send_request(self, door: Door, wanted: Wanted) -> None:
        length = (
            ("transfer-encoding", "chunked")
            if wanted.is_stream
            else ("content-length", str(len(wanted.body)))
        )
        headers = [("host", door.address), ("connection", "close"), length, *wanted.headers]
        events: list[h11.Event] = [
            h11.Request(method=wanted.verb, target=wanted.target, headers=headers)
        ]
        if wanted.body:
            events.append(h11.Data(data=wanted.body))
        if not wanted.has_more:
            events.append(h11.EndOfMessage())
        # Together, so that nobody waits for a body that is there.
        await self._send(*events)

    async def send(self, data: bytes) -> None:
        """Send a piece of the body.

        Raises:
            OSError: The connection is gone.
        """
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        """Say that the body is whole.

        Raises:
            OSError: The connection is gone.
        """
        await self._send(h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._protocol.send(event) or b"" for event in events))
        await self._writer.drain()

    async def head(self) -> h11.Response:
        """Return the head of the answer.

        Raises:
            OSError: The connection broke.
            h11.ProtocolError: What came is no HTTP.
        """
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event

    async def read(self) -> bytes:
        """Return the next piece of the answer's body, ``b""`` at its end.

        Raises:
            OSError: The connection broke.
            h11.ProtocolError: The body is not whole.
        """
        event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def _next(self) -> h11.Event:
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Event):
                if isinstance(event, h11.ConnectionClosed):
                    raise ConnectionResetError("the connection ended before the answer")
                return event
            self._protocol.receive_data(await self._reader.read(_READ_BYTES))

    def close(self) -> None:
        """End the connection at once. Idempotent."""
        self._writer.transport.abort()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # It is this process's own listener; its certificate names what clients dial.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
