"""Frames of HTTP/2 that break its rules (RFC 9113), sent in one write, so that nothing is timed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

import pytest
from hpack import Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
)

from tests.support.mesh import RunningMesh

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_TIMEOUT_S: Final = 30.0
_HEAD_BYTES: Final = 9
_PROTOCOL_ERROR: Final = 1
_FRAME_SIZE_ERROR: Final = 6


@pytest.fixture
def connection(mesh: RunningMesh) -> Iterator[socket.socket]:
    """Return a connection that has sent the preface and its settings."""
    host, _, port = mesh.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as opened:
        opened.sendall(_PREFACE + SettingsFrame(0).serialize())
        yield opened


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received


def _frames(connection: socket.socket) -> Iterator[Frame]:
    """Yield what comes, up to the end of the connection."""
    while True:
        try:
            head = _exactly(connection, _HEAD_BYTES)
            frame, length = Frame.parse_frame_header(memoryview(head))
            frame.parse_body(memoryview(_exactly(connection, length)))
        except (EOFError, ConnectionResetError):
            return
        yield frame


def _frame_bytes_max(connection: socket.socket) -> int:
    settings = next(each for each in _frames(connection) if isinstance(each, SettingsFrame))
    return settings.settings[SettingsFrame.MAX_FRAME_SIZE]


def _headers(block: bytes, *flags: str) -> HeadersFrame:
    return HeadersFrame(1, block, flags=["END_HEADERS", *flags])


def _get(encoder: Encoder, **more: str) -> bytes:
    path = "/v1/things/x"
    head = {":method": "GET", ":scheme": "http", ":path": path, ":authority": "a", **more}
    block: bytes = encoder.encode(list(head.items()), huffman=False)
    return block


def test_headers_are_bounded_by_the_advertised_size_of_a_frame(
    connection: socket.socket,
) -> None:
    """6.5.2: one as large as we have said is read, and one byte more is a connection error."""
    bytes_max = _frame_bytes_max(connection)
    assert bytes_max > 1 << 14, "the least that there may be"
    block = _get(Encoder(), note="a" * 20_000)
    connection.sendall(_headers(block, "END_STREAM").serialize())
    answered = next(each for each in _frames(connection) if each.stream_id == 1)
    assert isinstance(answered, HeadersFrame)

    head = (bytes_max + 1).to_bytes(3, "big") + b"\x01\x05" + (3).to_bytes(4, "big")
    connection.sendall(head)
    told = next(each for each in _frames(connection) if isinstance(each, GoAwayFrame))
    assert told.error_code == _FRAME_SIZE_ERROR


@pytest.mark.parametrize("trailers", [[(":method", "GET")], [("a", "b")]])
def test_headers_that_do_not_end_a_request_are_refused_before_it_is_answered(
    connection: socket.socket, trailers: list[tuple[str, str]]
) -> None:
    """8.1: a second block of headers ends the stream."""
    encoder = Encoder()
    frames = [
        _headers(_get(encoder)),
        DataFrame(1, b"test"),
        _headers(encoder.encode(trailers, huffman=False)),
    ]
    connection.sendall(b"".join(frame.serialize() for frame in frames))
    answered = next(each for each in _frames(connection) if each.stream_id == 1)
    assert isinstance(answered, RstStreamFrame)
    assert answered.error_code == _PROTOCOL_ERROR
