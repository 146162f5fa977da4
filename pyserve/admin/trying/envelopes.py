"""Connect's envelopes of streams (connectrpc.com/docs/protocol): flags, length, message. Pure."""

from __future__ import annotations

import struct

MESSAGE, END = 0, 2
"""Flags: a message as it is, and how the stream has ended. Compression is not asked for."""

_HEAD = struct.Struct(">BI")


def envelope(flags: int, content: bytes) -> bytes:
    """Return a message in its envelope."""
    return _HEAD.pack(flags, len(content)) + content


class Envelopes:
    """Takes a stream apart as it comes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add what has come; return flags and content of each envelope that is whole now."""
        self._rest += data
        found: list[tuple[int, bytes]] = []
        while len(self._rest) >= _HEAD.size:
            flags, length = _HEAD.unpack_from(self._rest)
            end = _HEAD.size + length
            if len(self._rest) < end:
                break
            found.append((flags, bytes(self._rest[_HEAD.size : end])))
            del self._rest[:end]
        return found
