"""Cuts a process's output into lines of bounded length. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pyserve.config.control import OUTPUT_LINE_BYTES_MAX


class LineSplitter:
    """Takes bytes as they come and gives whole lines as text.

    A line longer than ``line_bytes_max`` is cut and says how much is missing, so that output
    without line ends cannot fill the memory.
    """

    def __init__(self, line_bytes_max: int = OUTPUT_LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._kept = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield every line that ``data`` completes, without its end."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._keep(part)
            yield self._take()
        self._keep(rest)

    def end(self) -> Iterator[str]:
        """Yield what was left without a line end."""
        if self._kept or self._dropped_bytes:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        room = self._line_bytes_max - len(self._kept)
        self._kept += part[:room]
        self._dropped_bytes += max(len(part) - room, 0)

    def _take(self) -> str:
        text = self._kept.decode(errors="replace").removesuffix("\r")
        if self._dropped_bytes:
            text += f" … [{self._dropped_bytes} bytes more]"
        self._kept.clear()
        self._dropped_bytes = 0
        return text
