"""A client of one HTTP/1.1 server, with h11: as much as an engine behind a URL needs.

Connections are reused. If an answer has not been read to its end, its connection is closed, which
tells the server to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

from pyserve.errors import OptionError

_READ_BYTES = 65_536
_IDLE_MAX = 64
# Of an answer that is read as a whole: embeddings of many texts are large.
_BODY_BYTES_MAX = 256 * 1024 * 1024


class ServerGone(ConnectionError):
    """The server cannot be reached, or has broken off an answer."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server is.

    Attributes:
        host: Its name, for the header too.
        port: Its port.
        path: The prefix of all paths, without a slash at the end.
        is_tls: Whether the scheme is https.
        socket: Path of its Unix socket in place of host and port; empty: none.
    """

    host: str
    port: int
    path: str = ""
    is_tls: bool = False
    socket: str = ""


def origin_of(url: str) -> Origin:
    """Return where a URL leads.

    Raises:
        OptionError: It is no URL of HTTP.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise OptionError(f"the base_url is {url!r}; write one such as http://127.0.0.1:8000/v1")
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    return Origin(parts.hostname, port, parts.path.rstrip("/"), is_tls)


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.state = h11.Connection(h11.CLIENT)

    @property
    def is_fresh(self) -> bool:
        """Whether another request may be sent."""
        is_open = not self.reader.at_eof() and not self.writer.is_closing()
        return is_open and self.state.our_state is h11.IDLE

    async def send(self, *events: h11.Event) -> None:
        for event in events:
            self.writer.write(self.state.send(event) or b"")
        await self.writer.drain()

    async def receive(self) -> h11.Event:
        while True:
            event = self.state.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            self.state.receive_data(await self.reader.read(_READ_BYTES))

    def close(self) -> None:
        self.writer.transport.abort()


class Response:
    """The answer to a request, while its context is entered.

    Attributes:
        status: Its number.
        headers: By their names in lower case.
    """

    def __init__(self, connection: _Connection, head: h11.Response) -> None:
        self._connection = connection
        self.status = head.status_code
        self.headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes.

        Raises:
            ServerGone: It ends before its time.
        """
        with _as_gone("broke off its answer"):
            while isinstance(event := await self._connection.receive(), h11.Data):
                yield bytes(event.data)

    async def read(self) -> bytes:
        """Return the whole body.

        Raises:
            ServerGone: It ends before its time, or is larger than 256 MiB.
        """
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > _BODY_BYTES_MAX:
                raise ServerGone(f"the answer is larger than {_BODY_BYTES_MAX} bytes")
        return bytes(body)


class HttpClient:
    """Sends requests to one server.

    Args:
        origin: Where it is.
        headers: Sent with each request.
        connect_timeout_s: How long a new connection may take.
    """

    def __init__(
        self, origin: Origin, headers: Mapping[str, str], *, connect_timeout_s: float = 10.0
    ) -> None:
        self._origin = origin
        self._headers = [("host", _host_of(origin)), *headers.items()]
        self._connect_timeout_s = connect_timeout_s
        self._tls = ssl.create_default_context() if origin.is_tls else None
        self._idle: deque[_Connection] = deque()

    @contextlib.asynccontextmanager
    async def open(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Response]:
        """Send a request, and yield the answer when its head is here.

        Args:
            method: Of the request.
            path: Below that of the origin, or with a second slash before it: of the server.
            body: Sent as JSON; ``None``: there is none.

        Raises:
            ServerGone: The server cannot be reached, or does not answer by HTTP.
        """
        target = path[1:] if path.startswith("//") else self._origin.path + path
        raw = b"" if body is None else json.dumps(body).encode()
        headers = [*self._headers, ("content-length", str(len(raw)))]
        if body is not None:
            headers.append(("content-type", "application/json"))
        request = h11.Request(method=method, target=target, headers=headers)
        connection = await self._connection()
        try:
            with _as_gone("did not answer"):
                await connection.send(request, h11.Data(data=raw), h11.EndOfMessage())
                head = await connection.receive()
                while isinstance(head, h11.InformationalResponse):
                    head = await connection.receive()
            if not isinstance(head, h11.Response):
                raise ServerGone("the server closed the connection instead of an answer")
            yield Response(connection, head)
        finally:
            self._leave(connection)

    async def json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Any]:
        """Return the status of an answer, and its JSON; ``None`` where it is none.

        Raises:
            ServerGone: See ``open``.
        """
        async with self.open(method, path, body) as response:
            raw = await response.read()
            try:
                return response.status, json.loads(raw)
            except ValueError:
                return response.status, None

    async def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # Sockets are closed in the loop's next turn.

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        origin = self._origin
        with _as_gone(f"cannot be reached at {origin.socket or _host_of(origin)}"):
            async with asyncio.timeout(self._connect_timeout_s):
                if origin.socket:
                    return _Connection(*await asyncio.open_unix_connection(origin.socket))
                found = await asyncio.open_connection(origin.host, origin.port, ssl=self._tls)
                return _Connection(*found)

    def _leave(self, connection: _Connection) -> None:
        state = connection.state
        if state.our_state is h11.DONE and state.their_state is h11.DONE:
            state.start_next_cycle()
        if connection.is_fresh and len(self._idle) < _IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()


def _host_of(origin: Origin) -> str:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    return host if origin.port == (443 if origin.is_tls else 80) else f"{host}:{origin.port}"


@contextlib.contextmanager
def _as_gone(what: str) -> Any:
    try:
        yield
    except ServerGone:
        raise
    except (OSError, h11.ProtocolError, EOFError) as error:
        reason = str(error) or type(error).__name__
        raise ServerGone(f"the server {what}: {reason}") from error
