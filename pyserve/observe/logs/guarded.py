"""Loggers that never raise: handlers, filters and record factories of user code may.

A failure is logged where its call has to end. An exception of a handler there would keep the call
from its end, so its client would wait for ever.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping
from typing import Any

from pyserve.observe.log_rate_limit import LogRateLimit

BROKEN: tuple[type[BaseException], ...] = (Exception, SystemExit)
"""What user code may raise while it handles a record; some handlers exit at an error."""

_complaints = LogRateLimit()


class GuardedLogger(logging.Logger):
    """A logger whose methods return, whatever user code raises while the record is written."""

    def makeRecord(
        self,
        name: str,
        level: int,
        fn: str,
        lno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Mapping[str, object] | None = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        """Make a record, by Python's own class if the record factory cannot."""
        with contextlib.suppress(*BROKEN):
            made: object = super().makeRecord(
                name, level, fn, lno, msg, args, exc_info, func, extra, sinfo
            )
            if isinstance(made, logging.LogRecord):
                return made
        record = logging.LogRecord(name, level, fn, lno, msg, args, exc_info, func, sinfo)
        vars(record).update(extra or {})
        return record

    def filter(self, record: logging.LogRecord) -> Any:
        """Ask the filters; a record that one of them fails on is written."""
        try:
            return super().filter(record)
        except BROKEN as error:
            self.complain("a filter", error)
            return True

    def handle(self, record: logging.LogRecord) -> None:
        """Give a record to the handlers."""
        try:
            super().handle(record)
        except BROKEN as error:
            self.complain("a handler", error)

    def complain(self, what: str, error: BaseException) -> None:
        """Tell now and then that something of user code cannot take the records of pyserve."""
        if _complaints.allows(what):
            with contextlib.suppress(*BROKEN):
                self.write_complaint(complaint(what, error))

    def write_complaint(self, record: logging.LogRecord) -> None:
        """Write a record without those that have failed: to standard error."""
        sys.stderr.write(f"{record.getMessage()}\n")


def complaint(what: str, error: BaseException) -> logging.LogRecord:
    """Return the record that says what has failed."""
    text = "%s of logging raised %s: %s; it misses records of pyserve"
    given = (what, type(error).__name__, error)
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, given, None)


def guard(logger: logging.Logger) -> logging.Logger:
    """Make a logger a guarded one, unless user code has chosen its class."""
    if type(logger) is logging.Logger:
        logger.__class__ = GuardedLogger
    return logger
