"""The output of a process: lines of bounded length, and a file followed where its reader stopped.

A pipe would break with its reader, or block when it is full. The file is bounded: its reader
empties it from time to time, and without a reader the process itself keeps it within bounds. The
kernel announces what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pyserve.config.control import (
    OUTPUT_FILE_BYTES_MAX,
    OUTPUT_FILE_KEPT_BYTES,
    OUTPUT_LINE_BYTES_MAX,
    OUTPUT_OBJECT_BYTES_MAX,
    PASSING,
)
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


_READ_BYTES = 1 << 20
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_POSITION_DIGITS = 20


class OutputFile:
    """One file; beside it another one that says how far it was read.

    Args:
        path: where; it is made if it is missing, for this user only.
        on_line: called with each line that is new, and with what is passing.

    Attributes:
        path: the same.
        descriptor: of the file; what is written to it goes to the end.
        last_line: the last line that was not empty.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path, on_line: Callable[[str], None]) -> None:
        self.last_line = ""
        self.path = path
        self._on_line = on_line
        self._splitter = LineSplitter()
        self.descriptor = os.open(path, _OPEN | os.O_APPEND, 0o600)
        try:
            self._position = os.open(_position_of(path), _OPEN, 0o600)
        except BaseException:
            os.close(self.descriptor)
            raise
        self._read_to = int(os.pread(self._position, _POSITION_DIGITS, 0) or b"0")
        # Where the line begins that is not whole yet: the next reader begins there.
        self._whole_to = self._read_to

    def read(self) -> bool:
        """Pass on what is new, a mebibyte at most; return whether that was all."""
        size = os.fstat(self.descriptor).st_size
        if size < self._read_to:  # Emptied meanwhile.
            self._read_to = self._whole_to = 0
        if size == self._read_to:
            return True
        data = os.pread(self.descriptor, _READ_BYTES, self._read_to)
        if (last := data.rfind(b"\n")) >= 0:
            self._whole_to = self._read_to + last + 1
        self._read_to += len(data)
        self._pass_on(data)
        if self._read_to >= OUTPUT_FILE_KEPT_BYTES and self._read_to == size:
            # Output written between the check and this is lost: rarely, and a line per mebibyte.
            os.ftruncate(self.descriptor, 0)
            self._read_to = self._whole_to = 0
        # Left in the page cache, which outlives this process.
        os.pwrite(self._position, f"{self._whole_to:0{_POSITION_DIGITS}d}".encode(), 0)
        return len(data) < _READ_BYTES

    def close(self, *, remove: bool) -> None:
        """Close the file; with ``remove`` also pass on the rest and delete it. Idempotent."""
        if self.descriptor < 0:
            return
        if remove:
            # Bounded: a process that has left the group may go on writing.
            for _ in range(OUTPUT_FILE_BYTES_MAX // _READ_BYTES):
                self.read()
            for line in self._splitter.end():
                self._tell(line)
            for path in (self.path, _position_of(self.path)):
                # Even if a file cannot be removed, the end of its writer has to be reported.
                with contextlib.suppress(OSError):
                    path.unlink()
        os.close(self.descriptor)
        os.close(self._position)
        self.descriptor = self._position = -1

    def _pass_on(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            self._tell(line)

    def _tell(self, line: str) -> None:
        self.last_line = line.strip() or self.last_line
        self._on_line(line)


def _position_of(path: Path) -> Path:
    return path.with_suffix(".at")


# When files were written to, as Linux announces it: inotify. For use in one event loop.

_LOGGER = logging.getLogger(__name__)
_IN_MODIFY = 0x2
_EVENTS_BYTES = 64 << 10


class FileChanges:
    """Waits until one of some files has been written to.

    Where the kernel allows no more watches (``fs.inotify.max_user_instances`` and
    ``max_user_watches``), ``wait`` returns at once: whoever calls it between pauses polls then.

    Attributes:
        is_polling: the kernel has refused.
    """

    def __init__(self) -> None:
        self.is_polling = False
        self._changed = asyncio.Event()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            self._poll(ctypes.get_errno())
        else:
            asyncio.get_running_loop().add_reader(self._descriptor, self._on_changed)

    def add(self, path: Path) -> None:
        """Watch a file until it is removed; what it holds already counts as a change."""
        self._changed.set()
        if self.is_polling:
            return
        found = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY)
        if found < 0:
            self._poll(ctypes.get_errno())

    async def wait(self) -> None:
        """Return when a file has changed since the last call."""
        if not self.is_polling:
            await self._changed.wait()
            self._changed.clear()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_changed(self) -> None:
        os.read(self._descriptor, _EVENTS_BYTES)  # Which files it were does not matter.
        self._changed.set()

    def _poll(self, error: int) -> None:
        self.is_polling = True
        self._changed.set()
        _LOGGER.info("output of replicas is polled: inotify says %s", os.strerror(error))
