"""One request to the ingress over HTTP/1.1, whose body and answer go at the same time."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import h11

from pyserve.config import local_host

if TYPE_CHECKING:
    from pyserve.admin.context import Door
    from pyserve.admin.trying.wanted import Wanted

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
