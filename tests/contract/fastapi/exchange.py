"""One HTTP/1.1 request over a socket of its own, and everything that came back."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import h11

_TIMEOUT_S = 20.0
# What differs between any two servers, and what belongs to one connection.
_NOT_COMPARED = frozenset(
    {b"date", b"server", b"x-request-id", b"connection", b"keep-alive", b"transfer-encoding"}
)
HOST = "shapes.example"


@dataclass(frozen=True)
class Asked:
    """A request of the table; ``pieces`` makes the body a chunked one."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    pieces: Sequence[bytes] | None = None
    host: str = HOST


@dataclass
class Answered:
    """What a server answered; ``is_whole`` says that the body was not broken off."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    is_whole: bool = False

    def without_length(self) -> Answered:
        """Return it as if it had come in chunks."""
        kept = [each for each in self.headers if each[0] != b"content-length"]
        return replace(self, headers=kept)

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]


def ask(address: str, asked: Asked, prefix: str = "") -> Answered:
    """Send ``asked`` to ``host:port`` and read the answer to its end."""
    host, _, port = address.rpartition(":")
    connection = h11.Connection(h11.CLIENT)
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as wire:
        head = h11.Request(
            method=asked.method, target=prefix + asked.path, headers=_request_headers(asked)
        )
        wire.sendall(connection.send(head) or b"")
        pieces = [asked.body] if asked.pieces is None else asked.pieces
        try:
            for piece in pieces:
                if piece:
                    wire.sendall(connection.send(h11.Data(data=piece)) or b"")
            wire.sendall(connection.send(h11.EndOfMessage()) or b"")
        except (BrokenPipeError, ConnectionResetError):
            pass  # It has answered before it had read everything, and that answer is there.
        return _read(connection, wire)


def _request_headers(asked: Asked) -> list[tuple[str, str]]:
    headers = [("host", asked.host), *asked.headers]
    if asked.pieces is not None:
        headers.append(("transfer-encoding", "chunked"))
    elif asked.body or asked.method in {"POST", "PUT", "PATCH"}:
        headers.append(("content-length", str(len(asked.body))))
    return headers


def _read(connection: h11.Connection, wire: socket.socket) -> Answered:
    answered = Answered()
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return answered  # The connection ended in the middle of the body.
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(wire.recv(65536))
            except ConnectionResetError:
                return answered
        elif isinstance(event, h11.Response):
            answered.status = event.status_code
            answered.headers = sorted(
                (bytes(name), _in_order(bytes(name), bytes(value)))
                for name, value in event.headers
                if bytes(name) not in _NOT_COMPARED
            )
        elif isinstance(event, h11.Data):
            answered.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            answered.is_whole = True
            return answered
        elif isinstance(event, h11.ConnectionClosed):
            return answered


def _in_order(name: bytes, value: bytes) -> bytes:
    """Sort the methods of an ``allow``, which Starlette keeps in a set: their order is chance."""
    return b", ".join(sorted(value.split(b", "))) if name == b"allow" else value
