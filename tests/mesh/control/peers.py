"""Peers of a controller that speak HTTP/2 by hand: they send no more than they are told to."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import hpack

from benchmarks.hostile.http2 import (
    ACK,
    END_STREAM,
    GRPC,
    Headers,
    Kind,
    frame,
    frames_in,
    greeting,
    request,
)

TIMEOUT_S = 30.0
# RFC 9113, 6.9.2: what a stream may send before it has heard of a window.
_WINDOW_BYTES = 65_535
_FRAME_BYTES = 16_384
_INITIAL_WINDOW_SIZE = 4


def token_of(token: bytes) -> Headers:
    """Return the metadatum that proves membership, as it is sent."""
    return (("pyserve-token-bin", base64.b64encode(token).decode().rstrip("=")),)


def message(size_bytes: int, body: bytes = b"") -> bytes:
    """Return the head of a gRPC message of this size, and what of it is given."""
    return b"\0" + size_bytes.to_bytes(4, "big") + body


class Peer:
    """One connection to a controller, with one call at a time.

    Args:
        address: ``host:port`` or ``unix:path``.
    """

    def __init__(self, address: str) -> None:
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.sendall(greeting())
        self._decoder = hpack.Decoder()
        self._received = bytearray()
        self._stream_id = -1
        self._initial_window_bytes = _WINDOW_BYTES
        self._connection_window_bytes = _WINDOW_BYTES
        self._stream_window_bytes = 0
        self.answer: dict[str, str] = {}
        self.has_ended = False

    def begin(self, path: str, headers: Headers = (), body: bytes = b"") -> None:
        """Send the head of a call and what comes first; it stays open."""
        self._stream_id += 2
        self._stream_window_bytes = self._initial_window_bytes - len(body)
        self._connection_window_bytes -= len(body)
        self.answer, self.has_ended = {}, False
        head = request(self._stream_id, "POST", path, (*GRPC, *headers), end=False)
        self.socket.sendall(head + (frame(Kind.DATA, 0, self._stream_id, body) if body else b""))

    def send(self, piece: bytes) -> None:
        """Send one piece of the body when the windows let it through; none after the call's end."""
        while not self.has_ended:
            if min(self._stream_window_bytes, self._connection_window_bytes) < len(piece):
                self._read()
                continue
            self.socket.sendall(frame(Kind.DATA, 0, self._stream_id, piece))
            self._stream_window_bytes -= len(piece)
            self._connection_window_bytes -= len(piece)
            return

    def half_close(self) -> None:
        """Say that no message follows."""
        self.socket.sendall(frame(Kind.DATA, END_STREAM, self._stream_id))

    def push(self, size_bytes: int) -> int:
        """Send as much as the windows let through, until the call has ended; return how much."""
        sent_bytes, piece = 0, bytes(_FRAME_BYTES)
        while not self.has_ended and sent_bytes < size_bytes:
            room = min(self._stream_window_bytes, self._connection_window_bytes)
            if room < _FRAME_BYTES:
                self._read()
                continue
            try:
                self.socket.sendall(frame(Kind.DATA, 0, self._stream_id, piece))
            except (BrokenPipeError, ConnectionResetError):
                break
            self._stream_window_bytes -= _FRAME_BYTES
            self._connection_window_bytes -= _FRAME_BYTES
            sent_bytes += _FRAME_BYTES
        return sent_bytes

    def status(self) -> int:
        """Wait for the end of the call, and return its status."""
        while not self.has_ended:
            self._read()
        return int(self.answer["grpc-status"])

    def head(self) -> None:
        """Wait for the beginning of an answer."""
        while not self.answer:
            self._read()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def _read(self) -> None:
        received = self.socket.recv(1 << 18)
        if not received:
            self.has_ended = True
        self._received += received
        frames = frames_in(bytes(self._received))
        del self._received[: sum(9 + len(payload) for *_, payload in frames)]
        for kind, flags, stream_id, payload in frames:
            self._take(kind, flags, stream_id, payload)

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        is_ours = stream_id == self._stream_id
        if kind == Kind.SETTINGS and not flags & ACK:
            self._initial_window_bytes = _settings(payload).get(
                _INITIAL_WINDOW_SIZE, self._initial_window_bytes
            )
            self._stream_window_bytes += self._initial_window_bytes - _WINDOW_BYTES
            self.socket.sendall(frame(Kind.SETTINGS, ACK, 0))
        elif kind == Kind.WINDOW_UPDATE:
            credit = int.from_bytes(payload, "big")
            if stream_id == 0:
                self._connection_window_bytes += credit
            elif is_ours:
                self._stream_window_bytes += credit
        elif kind == Kind.HEADERS:
            # All heads, since a block may refer to those before it.
            fields = self._decoder.decode(payload)
            block = {str(name): str(value) for name, value in fields}
            self.answer |= block if is_ours else {}
        if (kind in {Kind.HEADERS, Kind.DATA} and flags & END_STREAM) or kind == Kind.RST_STREAM:
            self.has_ended |= is_ours


def _settings(payload: bytes) -> dict[int, int]:
    pairs = (payload[at : at + 6] for at in range(0, len(payload), 6))
    return {int.from_bytes(pair[:2], "big"): int.from_bytes(pair[2:], "big") for pair in pairs}


@contextmanager
def peer_of(address: str) -> Iterator[Peer]:
    """Connect to a controller until the block ends."""
    peer = Peer(address)
    try:
        yield peer
    finally:
        peer.close()


def ends_s(peers: Iterable[Peer], timeout_s: float) -> list[float]:
    """Say nothing more, and return after how long each connection was closed."""
    begun_s, ends = time.monotonic(), []
    for peer in peers:
        while True:
            left_s = begun_s + timeout_s - time.monotonic()
            assert left_s > 0, f"a silent connection is still open after {timeout_s:g} s"
            peer.socket.settimeout(left_s)
            try:
                # Incoming messages are read, so that a full socket cannot cause the end.
                if not peer.socket.recv(1 << 18):
                    break
            except ConnectionResetError:
                break
            except TimeoutError:
                continue
        ends.append(time.monotonic() - begun_s)
    return ends
