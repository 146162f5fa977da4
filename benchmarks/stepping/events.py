"""A client of streams of events over HTTP/1.1 that costs little: it reads each to its end."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any

import httptools

# More calls than that wait; as many as a replica of the other forms takes.
_CONNECTIONS_MAX = 2000


class Events:
    """Posts the number of steps of a request, and counts the events of its answer.

    Args:
        address: host:port.
        path: Of the requests.
        key: Of the number in a JSON object; ``None``: the body is the number.
    """

    def __init__(self, address: str, path: str, key: str | None = None) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._key = key
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
            f"accept: text/event-stream\r\n"
        )
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._places = asyncio.Semaphore(_CONNECTIONS_MAX)

    async def __aenter__(self) -> Events:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for connection in self._open:
            connection.close()
        await asyncio.gather(*(connection.lost.wait() for connection in self._open))

    async def call(self, steps: int) -> None:
        """Send a request, and return at the end of its answer.

        Raises:
            RuntimeError: The answer has another status than 200, or another number of events.
            ConnectionError: The connection broke.
        """
        body = json.dumps(steps if self._key is None else {self._key: steps})
        request = f"{self._head}content-length: {len(body)}\r\n\r\n{body}".encode()
        async with self._places:
            connection = await self._connection()
            status, events = await connection.exchange(request)
            self._idle.append(connection)
        if (status, events) != (200, steps):
            raise RuntimeError(f"status {status}, {events} events for {steps} steps")

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost.is_set():
                return connection
            self._open.discard(connection)
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(_Connection, self._host, self._port)
        self._open.add(made)
        return made


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self._events = 0
        self._end = b""
        self._answer: asyncio.Future[tuple[int, int]] | None = None

    async def exchange(self, request: bytes) -> tuple[int, int]:
        """Send a request; return the status and the number of events of its answer."""
        self._events, self._end = 0, b""
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("closed in an answer"))

    def on_body(self, body: bytes) -> None:
        # The end of an event may be cut in two.
        self._events += (self._end + body).count(b"\n\n")
        self._end = body[-1:] if body[-2:] != b"\n\n" else b""

    def on_message_complete(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._parser.get_status_code(), self._events))
