"""Answers at the port of a replica as that would, with its id; the mesh token it has not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import hpack

from benchmarks.hostile.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    GRPC,
    PREFACE,
    Kind,
    frame,
    frames_in,
    greeting,
    literal,
    request,
)

TIMEOUT_S = 20.0
HELLO = "/pyserve.mesh/Hello"
PROVE = "/pyserve.mesh/Prove"
# What nothing announces: a port that becomes free.
_LOOK_S = 0.0005


def id_at(port: int) -> str:
    """Return the id with which a replica greets any client."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(greeting() + request(1, "POST", HELLO, GRPC))
        received = b""
        while True:
            received += connection.recv(65_536)
            for kind, _, stream_id, payload in frames_in(received):
                if kind == Kind.HEADERS and stream_id == 1:
                    return _fields(hpack.Decoder(), payload)["pyserve-replica-id"]


def _fields(decoder: hpack.Decoder, block: bytes) -> dict[str, str]:
    return {str(name): str(value) for name, value in decoder.decode(block)}


class Impostor:
    """Answers at the port of a replica with its id, and without the mesh token.

    Args:
        replica_id: Whose place it takes.

    Attributes:
        greeted: A router has asked who it is.
        calls: The paths of what routers have sent to it.
    """

    def __init__(self, replica_id: str) -> None:
        self._id = replica_id
        self._ended = threading.Event()
        self.greeted = threading.Event()
        self.calls: list[str] = []

    @contextlib.contextmanager
    def waiting(self, port: int) -> Iterator[None]:
        """Take the port as soon as its replica has died, and serve it until the block ends."""
        with self._running(lambda: self._wait_for(port)):
            yield

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """Serve a free port until the block ends; returns it."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(_LOOK_S)
            with self._running(lambda: self._accept(listener)):
                yield listener.getsockname()[1]

    @contextlib.contextmanager
    def _running(self, serve: Callable[[], None]) -> Iterator[None]:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _wait_for(self, port: int) -> None:
        while not self._ended.wait(_LOOK_S):
            with socket.socket() as listener, contextlib.suppress(OSError):
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port))
                listener.listen()
                listener.settimeout(_LOOK_S)
                self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(1.0)
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.sendall(frame(Kind.SETTINGS, 0, 0))
        decoder, received = hpack.Decoder(), b""
        while (piece := connection.recv(65_536)) and not self._ended.is_set():
            received = (received + piece).removeprefix(PREFACE)
            frames = frames_in(received)
            received = received[sum(9 + len(payload) for *_, payload in frames) :]
            for kind, flags, stream_id, payload in frames:
                if kind == Kind.SETTINGS and not flags & ACK:
                    connection.sendall(frame(Kind.SETTINGS, ACK, 0))
                elif kind == Kind.HEADERS:
                    path = _fields(decoder, payload)[":path"]
                    connection.sendall(self._answer(path, stream_id))

    def _answer(self, path: str, stream_id: int) -> bytes:
        pairs = [(":status", "200")]
        if path == HELLO:
            self.greeted.set()
            pairs += [("pyserve-replica-id", self._id), ("pyserve-nonce", "00" * 16)]
        elif path != PROVE:
            self.calls.append(path)
            pairs += [("content-type", "application/grpc"), ("grpc-status", "0")]
        block = b"".join(literal(*pair) for pair in pairs)
        return frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream_id, block)
