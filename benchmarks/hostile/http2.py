"""Frames of HTTP/2 as bytes, without the checks of a client: hostile ones send what they like."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM = 1
ACK = 1
END_HEADERS = 4
GRPC = (("te", "trailers"), ("content-type", "application/grpc"))

Headers = Iterable[tuple[str, str]]


class Kind(IntEnum):
    """Types of frames (RFC 9113, 6)."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame; its length is right."""
    head = struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream_id)
    return head + payload


def greeting(settings: dict[int, int] | None = None) -> bytes:
    """Return the preface and settings."""
    pairs = b"".join(struct.pack(">HI", *pair) for pair in (settings or {}).items())
    return PREFACE + frame(Kind.SETTINGS, 0, 0, pairs)


def block(method: str, path: str, headers: Headers = ()) -> bytes:
    """Return a header block in HPACK's simplest form, which leaves no state behind."""
    pairs = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", path),
        *headers,
    ]
    return b"".join(literal(name, value) for name, value in pairs)


def literal(name: str, value: str) -> bytes:
    """Return a header without indexing (RFC 7541, 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    return _integer(len(text)) + text.encode()


def _integer(value: int) -> bytes:
    """Encode with a prefix of seven bits (RFC 7541, 5.1)."""
    if value < 127:
        return bytes([value])
    rest, encoded = value - 127, bytearray([127])
    while rest >= 128:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def request(
    stream_id: int, method: str, path: str, headers: Headers = (), *, end: bool = True
) -> bytes:
    """Return the HEADERS of a request in one frame."""
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(Kind.HEADERS, flags, stream_id, block(method, path, headers))


def frames_in(received: bytes) -> list[tuple[int, int, int, bytes]]:
    """Take whole frames apart: kind, flags, stream, payload."""
    found, at = [], 0
    while at + 9 <= len(received):
        high, low, kind, flags, stream_id = struct.unpack_from(">BHBBI", received, at)
        end = at + 9 + (high << 16 | low)
        if end > len(received):
            break
        found.append((kind, flags, stream_id, received[at + 9 : end]))
        at = end
    return found


def goaway_code(received: bytes) -> int | None:
    """Return the error of the last GOAWAY; None without one."""
    codes = [
        int.from_bytes(payload[4:8], "big")
        for kind, _, _, payload in frames_in(received)
        if kind == Kind.GOAWAY
    ]
    return codes[-1] if codes else None
