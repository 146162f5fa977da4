"""Log files that are rotated, and what becomes of lines that they cannot take."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyserve.config.logs import Rotation
from pyserve.observe.log_rate_limit import LogRateLimit


class _File(logging.handlers.RotatingFileHandler):
    """A log file; a line that it cannot take is missing there, which is told now and then."""

    def __init__(self, path: Path, rotation: Rotation, tell: Callable[[str], None]) -> None:
        super().__init__(
            path,
            maxBytes=rotation.file_bytes_max,
            backupCount=rotation.files_kept,
            encoding="utf-8",
        )
        self._path = path
        self._tell = tell
        self._complaints = LogRateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the file of that name, also if another program has moved the former."""
        self._follow()
        super().emit(record)

    def _follow(self) -> None:
        stream: Any = self.stream
        if stream is None:
            return
        try:
            found, own = self._path.stat(), os.fstat(stream.fileno())
            if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
                return
        except FileNotFoundError:
            pass
        except (OSError, ValueError):  # Not known, so that nothing is to be done.
            return
        with contextlib.suppress(OSError, ValueError):
            stream.close()
        self.stream = None  # Opened by what writes next.

    def make_room(self, size: int) -> None:
        """Rotate the file if it has no room for this many characters."""
        self._follow()
        if self.stream is None:
            self.stream = self._open()
        if self.stream.tell() + size >= self.maxBytes:
            self.doRollover()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Say why the file cannot be written; called where ``emit`` has failed."""
        if self._complaints.allows():
            self._tell(
                f"pyserve: the log file {self._path} cannot be written: {sys.exception()}; lines "
                f"are missing in it, and warnings are here only"
            )


def open_rotating_file(
    log_dir: Path, name: str, rotation: Rotation, tell: Callable[[str], None]
) -> logging.StreamHandler[Any]:
    """Return what writes to a file that is rotated; ``tell`` hears of lines that it cannot take.

    Raises:
        OSError: No file can be written there.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    return _File(log_dir / name, rotation, tell)


def write_lines(handler: logging.StreamHandler[Any], lines: str) -> None:
    """Write many lines to a handler's stream at once; what fails is told as with ``emit``."""
    handler.acquire()
    try:
        if isinstance(handler, _File):
            handler.make_room(len(lines))
        handler.stream.write(f"{lines}\n")
        handler.flush()
    except Exception:
        handler.handleError(logging.makeLogRecord({}))
    finally:
        handler.release()
