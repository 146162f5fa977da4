"""Loggers for failures of user code: a traceback once a minute, and one line for each repetition.

Clients decide how often a call fails, and often with which text. So failures count as the same if
the type of the exception and the lines of code that it came through are the same; the message is
ignored. Without an exception, the logging line and its format decide. A repetition gets a line
unless this process has too many of them. Events that calls do not cause have other loggers.

A traceback is shown from the line of user code on: what ran it says nothing to its author.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pyserve.observe.log_rate_limit import Allowance, LogRateLimit
from pyserve.observe.logs.kept import guard

# Innermost frames that tell two failures apart, and exceptions of one failure (causes, members of
# a group): more than ordinary code has, so that a recursion is one place. Arbitrary.
_FRAMES_MAX = 50
_ERRORS_MAX = 8

# Lines without a traceback: who looks for the id of a call that has failed finds it, and clients
# add 4 KiB a second at most. Of the process, like its log: a client may come by all doors.
_LINES = Allowance(at_once=20, per_s=5.0)
# Of a message, and of the text of an exception, in such a line. Arbitrary.
_TEXT_BYTES_MAX = 200
# An exception has it in its ``__dict__`` that user code has returned, and not raised.
ANSWER_MARK = "_pyserve_answer"


def failure_logger(
    name: str,
    clock: Callable[[], float] = time.monotonic,
    lines: Allowance | None = _LINES,
) -> logging.Logger:
    """Return the logger of that name, which shortens failures that it wrote just before.

    What handlers of user code raise does not reach whoever logs.

    Args:
        name: As of ``logging``.
        clock: seconds, which never go back.
        lines: Limits the shortened lines; ``None``: there are none.
    """
    logger = guard(logging.getLogger(name))
    logger.addFilter(TracebackFilter(clock, lines))
    return logger


def user_code_logger(name: str) -> logging.Logger:
    """Return the logger of that name, whose tracebacks begin with user code; it writes them all."""
    logger = guard(logging.getLogger(name))
    logger.addFilter(_from_user_code)
    return logger


def exc_info_of(
    error: BaseException | None,
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """Return an exception of user code as ``exc_info`` of a logger.

    A logger that is given the exception itself asks whether it is true.
    """
    return None if error is None else (type(error), error, error.__traceback__)


def as_answer(error: BaseException) -> BaseException:
    """Mark an exception that user code has returned: it is an answer, and not a failure to log."""
    # Some exception types refuse to have attributes set.
    error.__dict__[ANSWER_MARK] = True
    return error


class TracebackFilter(logging.Filter):
    """Takes the traceback off records of a place that was written within the last minute.

    Args:
        clock: seconds, which never go back.
        lines: Limits the lines without a traceback; ``None``: they are only counted.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, lines: Allowance | None = None
    ) -> None:
        super().__init__()
        self._clock = clock
        self._lines = lines
        self._log_limit = LogRateLimit(clock)
        # Calls fail on the loop and in threads. The garbage collector, or a signal, may have
        # something logged in the middle of it.
        self._lock = threading.RLock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        error = record.exc_info[1] if record.exc_info else None
        # Below it is what somebody has asked for.
        if record.levelno < logging.WARNING:
            return _from_user_code(record)
        if error is not None and ANSWER_MARK in vars(error):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            # Nor is it unexpected, whatever the door has said.
            record.msg, record.args = record.getMessage().removeprefix("unexpected "), ()
            return self._shorten(record, error, "returned for an item of a batch")
        place = _place_of_record(record) if error is None else place_of(error)
        with self._lock:
            times = self._log_limit.admit(place)
        if times is None:
            return self._shorten(record, error, "its traceback is in the minute before")
        if times:
            record.msg, record.args = f"{record.getMessage()} (and {self._since(times, error)})", ()
        return _from_user_code(record)

    def forget(self) -> None:
        """Take what comes next for new; for tests."""
        self._log_limit = LogRateLimit(self._clock)
        if self._lines is not None:
            self._lines.renew()

    def _since(self, count: int, error: BaseException | None) -> str:
        times = "once" if count == 1 else f"{count} times"
        if self._lines is None:
            return f"{times} before, left out here"
        return f"{times} before" if error is None else f"{times} since the last traceback"

    def _shorten(self, record: logging.LogRecord, error: BaseException | None, why: str) -> bool:
        """Make one line of a record, if there may be another one."""
        left_out = None if self._lines is None else self._lines.admit()
        if left_out is None:
            return False
        text = _in_a_line(record.getMessage())
        if error is not None:
            name = type(error).__name__
            named = "" if name in text else f"{name}: "
            text = f"{text}: {named}{_in_a_line(text_of(error))} ({why})"
        if left_out:
            text += f" (failures without a line: {left_out})"
        record.msg, record.args = text, ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True


def _in_a_line(text: str) -> str:
    """Return a text as at most so many bytes of a line, as it will be written."""
    words = " ".join(text[: 8 * _TEXT_BYTES_MAX].split())
    line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in words)
    data = line.encode()
    if len(data) <= _TEXT_BYTES_MAX and len(text) <= 8 * _TEXT_BYTES_MAX:
        return line
    return f"{data[:_TEXT_BYTES_MAX].decode(errors='ignore')} ..."


def _from_user_code(record: logging.LogRecord) -> bool:
    """Give a record the traceback that its readers can act upon; it is written in any case."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and not record.exc_text:
        # Formatters take what is there already.
        record.exc_text = format_from_user_code(error).rstrip("\n")
    return True


def place_of(error: BaseException) -> Hashable:
    """Return what failures of one place have in common: types, files and lines."""
    try:
        return _place_of_all(error)
    except Exception:  # Attributes of an exception may be code of the user's.
        return type(error).__module__, type(error).__qualname__


def _place_of_all(error: BaseException) -> Hashable:
    return tuple(
        (type(each).__module__, type(each).__qualname__, *_lines(each.__traceback__))
        for each in _errors(error)
    )


def _place_of_record(record: logging.LogRecord) -> Hashable:
    # The format does not come from clients, unlike the arguments. Helpers log several formats from
    # one line. A place is something registered: a method, for example.
    place = getattr(record, "place", None)
    return record.name, str(record.msg), record.pathname, record.lineno, place


def _errors(error: BaseException) -> list[BaseException]:
    """Return the error and those behind it, as a traceback shows them."""
    found = [error]
    for each in found:
        context = None if each.__suppress_context__ else each.__context__
        # Exceptions may be false: those with a length, for example.
        behind = context if each.__cause__ is None else each.__cause__
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        for new in (behind, *members):
            # By identity: user code may have made them comparable.
            is_known = any(new is old for old in found)
            if new is not None and not is_known and len(found) < _ERRORS_MAX:
                found.append(new)
    return found


def _lines(trace: TracebackType | None) -> list[tuple[str, int]]:
    places = []
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return places[-_FRAMES_MAX:]


# By this package's own directory, not by its name: users have folders of that name too.
_NOT_USER_CODE = (f"{Path(__file__).parent.parent}{os.sep}", importlib.__file__, "<frozen ")
# Modules between this package and the user code that they run.
_RUNNERS = tuple(
    str(Path(os.__file__).with_name(each)) for each in ("asyncio", "concurrent", "threading.py")
)
# Python's own descriptor: users' types may hide the attribute.
_TRACEBACK: Any = vars(BaseException)["__traceback__"]


def is_user_code(filename: str) -> bool:
    """Tell whether a frame's file is neither of this package nor of the import machinery."""
    return not filename.startswith(_NOT_USER_CODE)


def describe(error: BaseException) -> str:
    """Return ``Type: text (at file:line)`` with the innermost place in user code, if there is one.

    For a ``SyntaxError`` the place is in the file that cannot be parsed.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} (at {error.filename}:{error.lineno})"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)
    ]
    place = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text_of(error)}{place}"


def blames_user_code(error: BaseException) -> bool:
    """Tell whether the traceback of ``error``, or of what it came from, has a frame of users."""
    found = traceback.TracebackException.from_exception(error)
    return any(_of_users(each.stack) for each in _with_causes(found))


def text_of(error: BaseException) -> str:
    """Return the text of an exception of user code, whatever its ``__str__`` does."""
    try:
        # Of a subclass of str, every method may be the user's.
        return str.__str__(str(error))
    except BaseException as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def has_text(error: BaseException) -> bool:
    """Tell whether an exception of user code can be shown."""
    try:
        str(error)
    except BaseException:
        return False
    return True


def format_from_user_code(error: BaseException) -> str:
    """Return the traceback without frames of this package; where all are of it, the whole one.

    Frames of the event loop or thread that called this package are left out too, also for the
    causes of the exception. If the exception cannot be read, since its attributes may be the user's
    code, the result is the frames and the type.
    """
    try:
        return _whole(error)
    except Exception:
        frames = traceback.extract_tb(_TRACEBACK.__get__(error))
        lines = traceback.format_list(_of_users(frames) or list(frames))
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        return f"Traceback (most recent call last):\n{''.join(lines)}{name}: {text_of(error)}\n"


def _whole(error: BaseException) -> str:
    found = traceback.TracebackException.from_exception(error)
    for each in _with_causes(found):
        of_users = _of_users(each.stack)
        # A file that cannot be parsed has no frame: a SyntaxError shows its line by itself. Such an
        # error is recognized by `filename`, since Python 3.13 has deprecated `exc_type`.
        kept = of_users if of_users or hasattr(each, "filename") else each.stack
        each.stack = traceback.StackSummary.from_list(kept)
    return "".join(found.format())


def _of_users(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Return the frames of user code, and of what it calls, if there is any."""
    kept = [frame for frame in stack if is_user_code(frame.filename)]
    first = next((at for at, each in enumerate(kept) if not _is_runner(each.filename)), len(kept))
    return kept[first:]


def _is_runner(filename: str) -> bool:
    return filename.startswith(_RUNNERS)


def _with_causes(
    found: traceback.TracebackException,
) -> Iterator[traceback.TracebackException]:
    waiting = [found]
    while waiting:
        each = waiting.pop()
        yield each
        behind = (each.__cause__, each.__context__, *(each.exceptions or ()))
        waiting.extend(filter(None, behind))
