"""The output of a process that may outlive its reader: a file, followed from where it was read to.

A pipe would break with its reader, or block when it is full. The file is bounded: its reader
empties it from time to time, and without a reader the process itself keeps it within bounds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from pyserve.config.control import OUTPUT_FILE_BYTES_MAX, OUTPUT_FILE_KEPT_BYTES
from pyserve.launch.output import LineSplitter

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

    def read(self) -> bool:
        """Pass on what is new, a mebibyte at most; return whether that was all."""
        size = os.fstat(self.descriptor).st_size
        if size < self._read_to:  # Emptied meanwhile.
            self._read_to = 0
        if size == self._read_to:
            return True
        data = os.pread(self.descriptor, _READ_BYTES, self._read_to)
        self._read_to += len(data)
        self._pass_on(data)
        if self._read_to >= OUTPUT_FILE_KEPT_BYTES and self._read_to == size:
            # Output written between the check and this is lost: rarely, and a line per mebibyte.
            os.ftruncate(self.descriptor, 0)
            self._read_to = 0
        # Left in the page cache, which outlives this process.
        os.pwrite(self._position, f"{self._read_to:0{_POSITION_DIGITS}d}".encode(), 0)
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
