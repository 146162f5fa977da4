"""Floods of WebSocket frames (RFC 6455): what is cheap to send and takes Python a while to read."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator

NEIGHBOUR = "/sockets/"

_PATH = "/sockets/socket"
_BATCH = 2048
_CONTINUATION, _TEXT, _PING, _PONG = 0, 1, 9, 10
_IS_LAST = 0x80
_IS_COMPRESSED = 0x40


def _handshake(*, is_compressed: bool) -> bytes:
    extensions = "sec-websocket-extensions: permessage-deflate\r\n" if is_compressed else ""
    return (
        f"GET {_PATH} HTTP/1.1\r\nhost: test\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"{extensions}\r\n"
    ).encode()


def _frame(first: int, payload: bytes = b"") -> bytes:
    """Return a frame with a mask of zeros, under which the payload stays as it is."""
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


def _flood(again: bytes, *, begin: bytes = b"", is_compressed: bool) -> Iterator[bytes]:
    yield _handshake(is_compressed=is_compressed) + begin
    yield from itertools.repeat(again * _BATCH)


def _sender(
    again: bytes, *, begin: bytes = b"", is_compressed: bool = False
) -> Callable[[], Iterator[bytes]]:
    return lambda: _flood(again, begin=begin, is_compressed=is_compressed)


def _deflated(text: bytes) -> bytes:
    """Compress as permessage-deflate does: without the tail of an empty block (RFC 7692, 7.2.1)."""
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


_EMPTY = _frame(_CONTINUATION)
_BEGIN = _frame(_TEXT)
_BEGIN_COMPRESSED = _frame(_TEXT | _IS_COMPRESSED)
_MESSAGE = _frame(_TEXT | _IS_LAST, b"a")
_COMPRESSED = _frame(_TEXT | _IS_LAST | _IS_COMPRESSED, _deflated(b"a"))
_CONTROL = _frame(_PING | _IS_LAST) + _frame(_PONG | _IS_LAST)

# An attack each.
SENDERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "empty_fragments": _sender(_EMPTY, begin=_BEGIN),
    "empty_fragments_deflate": _sender(_EMPTY, begin=_BEGIN_COMPRESSED, is_compressed=True),
    "one_byte_fragments": _sender(_frame(_CONTINUATION, b"a"), begin=_BEGIN),
    "one_byte_fragments_deflate": _sender(
        # Blocks that hold nothing, stored: five bytes each, in fragments of one.
        b"".join(_frame(_CONTINUATION, bytes([byte])) for byte in b"\0\0\0\xff\xff"),
        begin=_BEGIN_COMPRESSED,
        is_compressed=True,
    ),
    "pings": _sender(_frame(_PING | _IS_LAST, b"12345678")),
    "pongs_deflate": _sender(_frame(_PONG | _IS_LAST), is_compressed=True),
    "control_mix": _sender(_CONTROL + _EMPTY, begin=_BEGIN),
    "tiny_messages": _sender(_MESSAGE),
    "tiny_messages_deflate": _sender(_COMPRESSED, is_compressed=True),
    "fragments_of_16_bytes": _sender(_frame(_CONTINUATION, b"a" * 16), begin=_BEGIN),
}
# Those that are closed in the end; messages may come for ever.
CLOSED = frozenset(SENDERS) - {"tiny_messages", "tiny_messages_deflate"}
