"""Frames that a client of HTTP/2 may not send: what becomes of its stream, or its connection."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from hpack import Encoder

import pyserve
from tests.mesh.ingress import apps
from tests.support.mesh import RunningMesh

pytestmark = pytest.mark.slow

_TIMEOUT_S = 20.0
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_MAX_FRAME_SIZE = 5
_STREAM_CLOSED, _FRAME_SIZE_ERROR, _CANCEL = 5, 6, 8

Frame = tuple[int, int, int, bytes]


class Client:
    """A connection on which any frame can be sent."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._buffer = b""
        self.encoder = Encoder()
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.send(_SETTINGS, 0, 0)

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        head = struct.pack("!I", len(payload))[1:] + bytes([kind, flags])
        self._socket.sendall(head + struct.pack("!I", stream) + payload)

    def head(self, path: str) -> bytes:
        """Return the header block of a POST."""
        fields = {":method": "POST", ":path": path, ":scheme": "http", ":authority": "h"}
        return bytes(self.encoder.encode(fields.items()))

    def frames(self) -> Iterator[Frame]:
        """Yield what comes, until the other side closes."""
        while data := self._socket.recv(65_536):
            self._buffer += data
            while len(self._buffer) >= 9:
                end = 9 + int.from_bytes(self._buffer[:3], "big")
                if len(self._buffer) < end:
                    break
                kind, flags = self._buffer[3], self._buffer[4]
                stream = int.from_bytes(self._buffer[5:9], "big")
                payload, self._buffer = self._buffer[9:end], self._buffer[end:]
                yield kind, flags, stream, payload

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def client(mesh: RunningMesh) -> Iterator[Client]:
    client = Client(mesh.address)
    yield client
    client.close()


@pytest.fixture(scope="module")
def endless(mesh: RunningMesh) -> Iterator[str]:
    """An application whose answer does not end by itself."""
    pyserve.run(apps.Endless.bind(), name="endless", route_prefix="/endless")
    yield "/endless"
    pyserve.delete("endless")


def _reset_under_way(client: Client, path: str) -> None:
    client.send(_HEADERS, _END_HEADERS | _END_STREAM, 1, client.head(path))
    assert any(kind == _DATA for kind, *_ in client.frames()), "the answer has begun"
    client.send(_RST_STREAM, 0, 1, struct.pack("!I", _CANCEL))


def test_headers_above_the_size_of_a_frame_end_the_connection(client: Client) -> None:
    kind, _, _, settings = next(client.frames())
    assert _SETTINGS == kind
    pairs = dict(struct.iter_unpack("!HI", settings))
    block = client.head("/web").ljust(pairs[_MAX_FRAME_SIZE] + 1, b"\0")

    client.send(_HEADERS, _END_HEADERS, 1, block)

    (goaway,) = [payload for kind, _, _, payload in client.frames() if kind == _GOAWAY]
    assert _FRAME_SIZE_ERROR == int.from_bytes(goaway[4:8], "big")


def test_data_after_a_reset_gets_no_answer(client: Client, endless: str) -> None:
    _reset_under_way(client, endless)
    client.send(_DATA, 0, 1, b"more")
    client.send(_PING, 0, 0, b"12345678")

    frames = client.frames()
    # Skip the frames that were written before the reset was read.
    while next(frames)[0] != _PING:
        pass
    client.send(_PING, 0, 0, b"87654321")
    later: list[Frame] = []
    while not later or later[-1][0] != _PING:
        later.append(next(frames))
    codes = [payload for kind, _, _, payload in later if kind == _RST_STREAM]
    assert {_PING, _RST_STREAM} >= {kind for kind, *_ in later}
    assert all(_STREAM_CLOSED == int.from_bytes(code, "big") for code in codes)


def test_headers_after_a_reset_are_of_a_closed_stream(client: Client, endless: str) -> None:
    _reset_under_way(client, endless)
    trailers = client.encoder.encode([("x-late", "1")])
    client.send(_HEADERS, _END_HEADERS | _END_STREAM, 1, bytes(trailers))

    (goaway,) = [payload for kind, _, _, payload in client.frames() if kind == _GOAWAY]
    assert _STREAM_CLOSED == int.from_bytes(goaway[4:8], "big")
