"""Where log records and the output of replicas go: standard error, and files if asked for.

In a controller everything passes one bounded queue to one thread, because a terminal or pipe that
nobody reads must not stop an event loop. Clients choose some of what is written (paths, texts of
exceptions); ``LineFormatter`` keeps them from writing lines of their own.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import queue
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyserve.errors import OptionError
from pyserve.observe.seldom import Seldom

_QUEUE_LENGTH_MAX = 10_000
_FILE_BYTES_MAX = 10 * 1024 * 1024
_FILES_KEPT = 5
_FORMAT = "%(levelname).1s %(asctime)s %(name)s: %(message)s"
_INDENT = "  "
# What a terminal obeys or may take for the end of a line (C0 and C1 of ECMA-48, separators and
# directions of Unicode), and halves of surrogates, which no file takes. Not tabs and line feeds.
_UNWRITTEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class LogSink:
    """Writes lines in a thread of its own, from its making until ``close``.

    Args:
        name: of the file, without its ending.
        log_dir: where the file goes, rotated at 10 MiB; None for standard error only.

    Raises:
        OptionError: no file can be written there.
    """

    def __init__(self, name: str, log_dir: Path | None) -> None:
        self._lines: queue.Queue[tuple[int, str] | None] = queue.Queue(_QUEUE_LENGTH_MAX)
        self._dropped = 0
        self._file: logging.Handler | None = None
        if log_dir is not None:
            self._file = _open_file(log_dir, f"{name}.log", self._write_line)
        self._thread = threading.Thread(target=self._write_all, name="log-sink", daemon=True)
        self._thread.start()

    def write(self, line: str, level: int = logging.WARNING) -> None:
        """Queue a line. A full queue drops it and counts; any thread may call."""
        try:
            self._lines.put_nowait((level, line))
        except queue.Full:
            self._dropped += 1

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is queued, for at most ``timeout_s``. Idempotent."""
        if self._thread.is_alive():
            try:
                self._lines.put(None, timeout=timeout_s)
            except queue.Full:
                return
            self._thread.join(timeout_s)

    def _write_all(self) -> None:
        while (entry := self._lines.get()) is not None:
            level, line = entry
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._write_line(f"... {dropped} lines were dropped, nobody read fast enough")
            # Standard error is for what somebody should see; the file has everything.
            if level >= logging.WARNING:
                self._write_line(line)
            if self._file is not None:
                self._file.emit(logging.makeLogRecord({"msg": line, "levelno": level}))
        if self._file is not None:
            # What its buffer still holds finds no room either.
            with contextlib.suppress(OSError):
                self._file.close()

    def _write_line(self, line: str) -> None:
        try:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            # The reader of standard error is gone. There is nobody left to tell.
            return


class _File(logging.handlers.RotatingFileHandler):
    """A log file; a line that it cannot take is missing there, which is told now and then."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        super().__init__(path, maxBytes=_FILE_BYTES_MAX, backupCount=_FILES_KEPT)
        self._path = path
        self._tell = tell
        self._complaints = Seldom()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Say why the file cannot be written; called where ``emit`` has failed."""
        if self._complaints.allows():
            self._tell(
                f"pyserve: the log file {self._path} cannot be written: {sys.exception()}; lines "
                f"are missing in it, and warnings are here only"
            )


def open_rotating_file(log_dir: Path, name: str, tell: Callable[[str], None]) -> logging.Handler:
    """Return what writes to a file that is rotated; ``tell`` hears of lines that it cannot take.

    Raises:
        OSError: No file can be written there.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    return _File(log_dir / name, tell)


def _open_file(log_dir: Path, name: str, tell: Callable[[str], None]) -> logging.Handler:
    try:
        return open_rotating_file(log_dir, name, tell)
    except OSError as error:
        # What lies in or above it may be what is wrong.
        found = error.filename or str(log_dir)
        place = "" if found == str(log_dir) else f", {found}"
        raise OptionError(
            f"PYSERVE_LOG_DIR={log_dir}{place} cannot be written: {error.strerror}; name a folder "
            f"in which this user may write, or take the variable away to log to standard error only"
        ) from None


class LineFormatter(logging.Formatter):
    r"""Makes lines of records: only the first of each begins at the margin, as records do.

    Control characters are written as in Python's source (``\x1b``).
    """

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of one record, those of its traceback included."""
        text = _UNWRITTEN.sub(_escape, super().format(record))
        return text.replace("\n", f"\n{_INDENT}")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class SinkHandler(logging.Handler):
    """Sends the records of ``logging`` to a sink."""

    def __init__(self, sink: LogSink) -> None:
        super().__init__()
        self._sink = sink
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record."""
        self._sink.write(self.format(record), record.levelno)


def set_up_logging(name: str, log_dir: Path | None, level: int = logging.INFO) -> LogSink:
    """Send all records of this process to a new sink, and return it for the process's output."""
    sink = LogSink(name, log_dir)
    root = logging.getLogger()
    root.handlers[:] = [SinkHandler(sink)]
    root.setLevel(level)
    return sink


def log_to_standard_error(level: int = logging.INFO) -> None:
    """Send all records of this process to standard error, where its launcher reads them."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level, handlers=[handler])
