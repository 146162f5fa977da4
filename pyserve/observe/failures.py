"""Loggers of what user code does wrong: the same is written once a minute, with a count.

Clients decide how often a call fails, and often with which text. So the type of the exception and
the lines of code that it came through say what is the same, and its message does not. Without an
exception it is the line that logs, and its format. What begins, ends or changes by itself, and not
by calls, has loggers of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from types import TracebackType

from pyserve.observe.seldom import Seldom

# Innermost frames that tell two failures apart, and exceptions of one failure (causes, members of
# a group): more than ordinary code has, so that a recursion is one place. Arbitrary.
_FRAMES_MAX = 50
_ERRORS_MAX = 8


def failure_logger(name: str, clock: Callable[[], float] = time.monotonic) -> logging.Logger:
    """Return the logger of that name, which leaves out failures that it wrote just before."""
    logger = logging.getLogger(name)
    logger.addFilter(Repeated(clock))
    return logger


class Repeated(logging.Filter):
    """Drops records of a place that was written within the last minute, and counts them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seldom = Seldom(clock)
        # Calls fail on the loop and in threads. The garbage collector, or a signal, may have
        # something logged in the middle of it.
        self._lock = threading.RLock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        # Below it is what somebody has asked for.
        if record.levelno < logging.WARNING:
            return True
        error = record.exc_info[1] if record.exc_info else None
        place = _place_of_record(record) if error is None else place_of(error)
        with self._lock:
            left_out = self._seldom.admit(place)
        if left_out:
            times = "once" if left_out == 1 else f"{left_out} times"
            text = f"{record.getMessage()} (and {times} before, left out here)"
            record.msg, record.args = text, ()
        return left_out is not None

    def forget(self) -> None:
        """Take what comes next for new; for tests."""
        self._seldom = Seldom(self._clock)


def place_of(error: BaseException) -> Hashable:
    """Return what failures of one place have in common: types, files and lines."""
    return tuple(
        (type(each).__module__, type(each).__qualname__, *_lines(each.__traceback__))
        for each in _errors(error)
    )


def _place_of_record(record: logging.LogRecord) -> Hashable:
    # The format is no text of a client's; helpers log with several from one line. A place is what
    # was registered: a method, for example.
    place = getattr(record, "place", None)
    return record.name, str(record.msg), record.pathname, record.lineno, place


def _errors(error: BaseException) -> list[BaseException]:
    """Return the error and those behind it, as a traceback shows them."""
    found = [error]
    for each in found:
        behind = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
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
