"""Cuts a process's output into lines of bounded length. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pyserve.config.control import OUTPUT_LINE_BYTES_MAX, OUTPUT_OBJECT_BYTES_MAX, PASSING
from pyserve.observe.logs.formats import long_line


class LineSplitter:
    r"""Takes bytes as they come and gives whole lines as text.

    Of a row that is written over by carriage returns, as progress bars do, the line is what stands
    there at last. What stands there meanwhile comes too, with ``PASSING`` at its end, once for each
    ``feed``; whoever keeps lines passes over it.

    A line longer than ``line_bytes_max`` is cut and says how much is missing, so that output
    without line ends cannot fill the memory. If it is an object of JSON of at most
    ``object_bytes_max``, it comes as a ``LongLine``.
    """

    def __init__(
        self,
        line_bytes_max: int = OUTPUT_LINE_BYTES_MAX,
        object_bytes_max: int = OUTPUT_OBJECT_BYTES_MAX,
    ) -> None:
        self._line_bytes_max = line_bytes_max
        self._object_bytes_max = object_bytes_max
        self._kept = bytearray()
        self._dropped_bytes = 0
        # The last byte was a carriage return: anything except a line end overwrites the row.
        self._returned = False
        self._is_rewritten = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield every line that ``data`` completes, without its end, and what is passing."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._keep(part)
            yield self._take()
        self._keep(rest)
        if rest and self._is_rewritten:
            yield self._text() + PASSING

    def end(self) -> Iterator[str]:
        """Yield what was left without a line end."""
        if self._kept or self._dropped_bytes:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        shown = part.rstrip(b"\r")
        if shown:
            _, returned, last = shown.rpartition(b"\r")
            if returned or self._returned:
                self._kept.clear()
                self._dropped_bytes = 0
            self._returned = False
            may_be_object = (self._kept or last).startswith(b"{")
            bytes_max = self._object_bytes_max if may_be_object else self._line_bytes_max
            room = bytes_max - len(self._kept)
            self._kept += last[:room]
            self._dropped_bytes += max(len(last) - room, 0)
            self._is_rewritten |= bool(returned)
        if shown != part:
            self._returned = self._is_rewritten = True

    def _take(self) -> str:
        text = self._object() or self._text()
        self._kept.clear()
        self._dropped_bytes = 0
        self._returned = self._is_rewritten = False
        return text

    def _object(self) -> str | None:
        if self._dropped_bytes or len(self._kept) <= self._line_bytes_max:
            return None
        return long_line(self._kept.decode(errors="replace"))

    def _text(self) -> str:
        text = self._kept[: self._line_bytes_max].decode(errors="replace")
        cut_bytes = max(len(self._kept) - self._line_bytes_max, 0) + self._dropped_bytes
        return f"{text} … [{cut_bytes} bytes more]" if cut_bytes else text
