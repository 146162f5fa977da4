"""Parses server-sent events from bytes that arrive in arbitrary pieces. Pure."""

from __future__ import annotations

# Of one event; arbitrary. The event of a token has a few hundred bytes.
_EVENT_BYTES_MAX = 16 * 1024 * 1024


class EventReader:
    """Puts the data of events together; comments and other fields are left out."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """Take bytes; return the data of the events that they complete.

        Raises:
            ValueError: An event is larger than 16 MiB, or is no UTF-8.
        """
        self._line += piece
        self._check(len(self._line))
        *lines, rest = self._line.split(b"\n")
        self._line = rest
        found: list[str] = []
        for line in lines:
            self._take(bytes(line.removesuffix(b"\r")), found)
        return found

    def _take(self, line: bytes, found: list[str]) -> None:
        if not line:
            if self._data:
                found.append(b"\n".join(self._data).decode())
                self._data, self._size = [], 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            self._check(self._size)

    def _check(self, size: int) -> None:
        if size > _EVENT_BYTES_MAX:
            raise ValueError(f"an event is larger than {_EVENT_BYTES_MAX} bytes")
