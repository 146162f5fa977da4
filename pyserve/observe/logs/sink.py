"""Where log records and the output of replicas go: standard error, and files if asked for.

In a controller everything passes one bounded queue to one thread, because a terminal or pipe that
nobody reads must not stop an event loop.
"""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pyserve.config.control import OUTPUT_LINE_BYTES_MAX, PASSING
from pyserve.config.logs import EncodingType, LogSettings, Rotation
from pyserve.errors import OptionError
from pyserve.folders import PrivateFolder
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.observe.logs.formats import LongLine, RequestFilter, formatter_of, output_as_json
from pyserve.observe.logs.kept import give_way_to_user_code, keep_loggers

_QUEUE_LENGTH_MAX = 10_000
# Long lines that wait for a file at once, as each may be a mebibyte; the file gets further ones
# shortened too. Arbitrary.
_WHOLE_LINES_MAX = 64
# How long a fork waits for a thread that writes to a log file.
_FORK_TIMEOUT_S = 1.0
# The level of lines that people at the terminal always see, wherever logs go.
_NOTICE = logging.CRITICAL + 1
_STDERR = 2


class _Line(NamedTuple):
    level: int
    text: str
    # For a file, if it is longer than the text.
    whole: str = ""


class LogSink:
    """Writes lines in a thread of its own, from its making until ``close``.

    Args:
        name: of the file, without its ending.
        settings: where and how lines are written.
        screen: a pipe to whoever draws on the terminal, and gets what else would be written to
            standard error, as long as it reads; it is closed here.
        says_where: where logs go to files only, one line says so.

    Raises:
        OptionError: no file can be written there.
    """

    def __init__(
        self,
        name: str,
        settings: LogSettings,
        screen: int | None = None,
        *,
        says_where: bool = True,
    ) -> None:
        self._screen = None if screen is None else io.FileIO(screen, "w")
        self._lines: queue.Queue[_Line | None] = queue.Queue(_QUEUE_LENGTH_MAX)
        self._whole = threading.BoundedSemaphore(_WHOLE_LINES_MAX)
        self._dropped = 0
        self._is_json = settings.encoding == EncodingType.JSON
        # Standard error gets only what a person should see; the file gets everything.
        self._level = logging.WARNING if settings.to_standard_error else _NOTICE
        self._file: logging.Handler | None = None
        if settings.directory is not None:
            self._file = self._open_file(f"{name}.log", settings, settings.directory)
        self._thread = threading.Thread(target=self._write_all, name="log-sink", daemon=True)
        self._thread.start()
        if says_where and not settings.to_standard_error:
            self.tell(f"pyserve: logs go to {settings.directory}")

    def write(self, line: str, level: int = logging.WARNING) -> None:
        """Queue a line. A full queue drops it and counts; any thread may call."""
        self._queue(_Line(level, line))

    def write_output(self, line: str) -> None:
        """Queue a line that a process of the mesh has printed, in the encoding of the log.

        Lines that end with ``PASSING`` go to a screen only.
        """
        if isinstance(line, LongLine):
            self._write_long(line)
        elif not line.endswith(PASSING):
            self.write(output_as_json(line) if self._is_json else line)
        elif self._screen is not None and not self._is_json:
            self.write(line)

    def tell(self, line: str) -> None:
        """Queue a line that people see even if logs go to files only."""
        self.write(output_as_json(line) if self._is_json else line, _NOTICE)

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is queued, for at most ``timeout_s``. Idempotent."""
        if self._thread.is_alive():
            try:
                self._lines.put(None, timeout=timeout_s)
            except queue.Full:
                return
            self._thread.join(timeout_s)

    def _queue(self, line: _Line) -> bool:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1
            return False
        return True

    def _write_long(self, line: LongLine) -> None:
        """Queue a long line: short for the terminal, and whole for the file."""
        prefix = "" if self._is_json else line.prefix
        shown = prefix + line.removeprefix(line.prefix)
        if self._file is None or not self._whole.acquire(blocking=False):
            self.write(shown)
        elif not self._queue(_Line(logging.WARNING, shown, prefix + line.whole)):
            self._whole.release()

    def _write_all(self) -> None:
        while (entry := self._lines.get()) is not None:
            level, line, whole = entry
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._say(f"... {dropped} lines were dropped, nobody read fast enough")
            if level >= self._level:
                self._write_line(line)
            if self._file is not None and not line.endswith(PASSING):
                self._file.emit(logging.makeLogRecord({"msg": whole or line, "levelno": level}))
            if whole:
                self._whole.release()
        if self._screen is not None:
            self._screen.close()
        if self._file is not None:
            # On a full disk, what its buffer still holds cannot be written either.
            with contextlib.suppress(OSError):
                self._file.close()

    def _say(self, line: str) -> None:
        self._write_line(output_as_json(line) if self._is_json else line)

    def _write_line(self, line: str) -> None:
        if self._screen is not None:
            text = line if line.endswith(PASSING) else f"{line}\n"
            try:
                self._screen.write(text.encode(errors="backslashreplace"))
            except OSError:
                # The screen has gone, and this mesh goes on; standard error may still be there.
                self._screen.close()
                self._screen = None
            else:
                return
        if line.endswith(PASSING):
            return
        try:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            # The reader of standard error is gone, so the line has no destination left.
            return

    def _open_file(self, name: str, settings: LogSettings, log_dir: Path) -> logging.Handler:
        try:
            if settings.home is not None:
                PrivateFolder(settings.home, make=True).close()
            return open_rotating_file(log_dir, name, settings.rotation, self._say)
        except OSError as error:
            # The fault may be in a folder above it, or in a file in it.
            found = error.filename or str(log_dir)
            place = "" if found == str(log_dir) else f", {found}"
            raise OptionError(
                f"PYSERVE_LOG_DIR={log_dir}{place} cannot be written: {error.strerror}; name a "
                f"folder in which this user may write, or take the variable away to log to "
                f"standard error only"
            ) from None


class _StandardError:
    """Standard error that stays open when user code closes or redirects its descriptor.

    A fork writes to the descriptor that it has inherited: it may end what reads from there by
    closing it.
    """

    def __init__(self) -> None:
        self._descriptor = os.dup(_STDERR)
        os.register_at_fork(after_in_child=self._leave)

    def write(self, text: str) -> int:
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def _leave(self) -> None:
        os.close(self._descriptor)
        self._descriptor = _STDERR


def _own_standard_error(stream: TextIO | None) -> Any:
    """Return a stream of pyserve's own if ``stream`` is standard error, else ``stream``."""
    try:
        # A test, or who embeds this, may have put something else in its place.
        is_usual = stream is not None and stream.fileno() == _STDERR
        return _StandardError() if is_usual else stream
    except (OSError, ValueError):  # It has no descriptor, or no further one is to be had.
        return stream


class SinkHandler(logging.Handler):
    """Sends the records of ``logging`` to a sink."""

    def __init__(self, sink: LogSink, formatter: logging.Formatter) -> None:
        super().__init__()
        self._sink = sink
        self.setFormatter(formatter)
        self.addFilter(RequestFilter(of_deployments_only=True))

    def write(self, records: Sequence[logging.LogRecord], *, everywhere: bool) -> None:
        """Write records of the access log: to the file, or ``everywhere``."""
        for record in records:
            self._sink.write(self.format(record), logging.WARNING if everywhere else logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record."""
        self._sink.write(self.format(record), record.levelno)


def set_up_logging(
    name: str,
    settings: LogSettings,
    facts: dict[str, str] | None = None,
    screen: int | None = None,
    *,
    says_where: bool = True,
) -> LogSink:
    """Send all records of this process to a new sink, and return it for the process's output.

    Args:
        name: of the process; its file is named so.
        settings: where and how lines are written.
        facts: what each JSON object has besides.
        screen: as of ``LogSink``.
        says_where: as of ``LogSink``.
    """
    sink = LogSink(name, settings, screen, says_where=says_where)
    formatter = formatter_of(settings.encoding, {"component": name, **(facts or {})})
    keep_loggers([SinkHandler(sink, formatter)], settings.level)
    return sink


def log_to_standard_error(
    level: int = logging.INFO, *, encoding: str = EncodingType.TEXT.value
) -> None:
    """Send all records of a replica's process to standard error, where its launcher reads them."""
    handler = logging.StreamHandler(_own_standard_error(sys.stderr))
    facts = {"component": "replica"}
    handler.setFormatter(formatter_of(encoding, facts, line_bytes_max=OUTPUT_LINE_BYTES_MAX))
    handler.addFilter(RequestFilter())
    keep_loggers([handler], level)
    give_way_to_user_code()


# Log files that are rotated, and what becomes of lines that they cannot take.


def _keep_whole_in_forks(handler: logging.Handler) -> None:
    """Fork only while no thread writes to the file of a handler.

    A child has a copy of the file object, whose own lock ``logging`` does not know: held by a
    thread that the child lacks, it would be held for ever.
    """
    reference = weakref.ref(handler)
    held: list[Any] = []

    def before() -> None:
        lock: Any = getattr(reference(), "lock", None)
        # Bounded: a thread that reconfigures logging may hold what the fork needs next.
        if lock is not None and lock.acquire(timeout=_FORK_TIMEOUT_S):
            held.append(lock)

    def in_parent() -> None:
        while held:
            held.pop().release()

    # In the child `logging` renews the locks of handlers.
    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=held.clear)


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
        _keep_whole_in_forks(self)

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
