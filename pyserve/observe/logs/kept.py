"""Loggers of pyserve that user code cannot silence by accident, and that never raise.

``logging.config.dictConfig`` and ``fileConfig`` disable by default every logger that they do not
name, and they and ``basicConfig(force=True)`` remove the handlers of the root logger.
``logging.disable`` silences all loggers of the process.
A process of the mesh runs user code that does so, and its tracebacks must be written nevertheless.
So pyserve's own records in such a process have their own handlers and their own level.

Records of user code go to pyserve's handlers only until user code says where they go. A handler
shows a record on the terminal if it writes to a standard stream, by whatever object, or if it hands
records on to a handler that does.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import logging.handlers
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyserve.observe.log_rate_limit import LogRateLimit

# Loggers that never raise: handlers, filters and record factories of user code may.
#
# A failure is logged where its call has to end. An exception of a handler there would keep the call
# from its end, so its client would wait for ever.

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


_NAME = "pyserve"
_handlers: list[logging.Handler] | None = None
_NOBODY = logging.NullHandler()
_basic_config = logging.basicConfig


class KeptLogger(GuardedLogger):
    """A logger of pyserve: it is never disabled, and finds its handlers without the root logger.

    Its level still applies.
    """

    @property
    def disabled(self) -> bool:
        """Always ``False``: code that sets it means all other loggers."""
        return False

    @disabled.setter
    def disabled(self, _value: bool) -> None:
        pass

    def isEnabledFor(self, level: int) -> bool:
        """Check only the levels: ``logging.disable`` silences only the records of user code."""
        if _handlers is None:
            return super().isEnabledFor(level)
        # Emptied when levels change.
        cache: dict[int, bool] = self._cache  # type: ignore[attr-defined]  # not in typeshed
        is_enabled = cache.get(level)
        if is_enabled is None:
            is_enabled = cache[level] = level >= self.getEffectiveLevel()
        return is_enabled

    def callHandlers(self, record: logging.LogRecord) -> None:
        """Give a record to pyserve's handlers, then to those of user code.

        Handlers of the standard streams do not get it, since it is there already. The record also
        passes through the method of ``logging.Logger``, which error collectors wrap. A handler
        that raises keeps the record from no other one.
        """
        own = _handlers
        if own is None:
            super().callHandlers(record)
            return
        for handler in own:
            self.give(handler, record)
        rest: Any = logging.Logger(self.name)
        for handler in _of_user_code(self):
            if _takes_own(handler):
                rest.addHandler(_Guarded(handler, self))
        if not rest.handlers:
            rest.addHandler(_NOBODY)  # Without any, ``logging.lastResort`` would write it.
        rest.callHandlers(record)

    def give(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        """Give a record to a handler that takes its level."""
        try:
            if record.levelno >= handler.level:
                handler.handle(record)
        except BROKEN as error:
            self.complain(f"a {type(handler).__name__}", error)

    def write_complaint(self, record: logging.LogRecord) -> None:
        """Write a record to pyserve's handlers alone."""
        for handler in own_handlers():
            handler.handle(record)


class _Guarded:
    """What a logger needs of a handler."""

    def __init__(self, handler: logging.Handler, logger: KeptLogger) -> None:
        self.level = handler.level
        self._handler = handler
        self._logger = logger

    def handle(self, record: logging.LogRecord) -> None:
        self._logger.give(self._handler, record)


def keep_loggers(handlers: Sequence[logging.Handler], level: int | str) -> None:
    """Make ``handlers`` write all records of pyserve, whatever user code configures.

    They also replace the handlers of the root logger.
    """
    global _handlers
    root = logging.getLogger()
    root.handlers[:] = handlers
    _handlers = list(handlers)
    manager = root.manager
    # It is called for each new logger; loggers of other packages stay as usual.
    manager.loggerClass = _make_logger  # type: ignore[assignment]
    for name, logger in tuple(manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and _is_own(name):
            logger.__class__ = KeptLogger
            logger.__dict__.pop("disabled", None)
    set_level(level)


def give_way_to_user_code() -> None:
    """Let ``basicConfig`` and new handlers of user code act as if pyserve had no handlers.

    ``basicConfig`` does nothing where the root logger has handlers. Records of user code that reach
    a handler for standard output or standard error would be there twice.
    """
    for handler in own_handlers():
        handler.addFilter(_has_no_other_terminal)
    watch_destinations()
    logging.basicConfig = _configure_basically


@functools.wraps(_basic_config)
def _configure_basically(**kwargs: Any) -> None:
    root = logging.getLogger()
    before = root.handlers[:]
    if next(_of_user_code(root), None) is None:
        root.handlers.clear()
    try:
        _basic_config(**kwargs)
    except BaseException:  # Its arguments were wrong.
        root.handlers[:] = before
        raise


def _has_no_other_terminal(record: logging.LogRecord) -> bool:
    """Whether pyserve has to write a record, since no handler of user code shows it."""
    if _is_own(record.name):
        return True
    logger = logging.getLogger().manager.loggerDict.get(record.name)
    if not isinstance(logger, logging.Logger):
        logger = logging.getLogger()
    behind = (end for handler in _of_user_code(logger) for end in ends(handler))
    return not any(map(is_on_terminal, behind))


@contextlib.contextmanager
def keeping_nothing() -> Iterator[None]:
    """Undo in the end what ``keep_loggers`` has done meanwhile; for tests."""
    global _handlers
    root = logging.getLogger()
    handlers, level, own = root.handlers[:], root.level, logging.getLogger(_NAME).level
    maker, before, configure = root.manager.loggerClass, _handlers, logging.basicConfig
    _handlers = None
    try:
        yield
    finally:
        _handlers = before
        logging.basicConfig = configure
        forget_destinations()
        root.manager.loggerClass = maker
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger(_NAME).setLevel(own)


def set_level(level: int | str) -> None:
    """Set the level of the root logger, and that of pyserve's where it is kept."""
    logging.getLogger().setLevel(level)
    if _handlers is not None:
        logging.getLogger(_NAME).setLevel(level)


def takes_info() -> bool:
    """Whether pyserve writes records of the level INFO."""
    return logging.getLogger(_NAME).isEnabledFor(logging.INFO)


def own_handlers() -> list[logging.Handler]:
    """Return the handlers that write what pyserve logs."""
    return list(logging.getLogger().handlers if _handlers is None else _handlers)


def add_handler(handler: logging.Handler, *, first: bool = False) -> None:
    """Have a handler get the records of pyserve and of the root logger."""
    for handlers in (logging.getLogger().handlers, _handlers):
        if handlers is not None and handler not in handlers:
            handlers.insert(0 if first else len(handlers), handler)


def remove_handler(handler: logging.Handler) -> None:
    """Undo ``add_handler``."""
    for handlers in (logging.getLogger().handlers, _handlers):
        if handlers is not None and handler in handlers:
            handlers.remove(handler)


def _make_logger(name: str) -> logging.Logger:
    return KeptLogger(name) if _is_own(name) else logging.getLoggerClass()(name)


def _is_own(name: str) -> bool:
    return name == _NAME or name.startswith(f"{_NAME}.")


def _of_user_code(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers that get what ``logger`` logs, without pyserve's."""
    own = own_handlers()
    each: Any = logger
    while each is not None:
        yield from (handler for handler in each.handlers if handler not in own)
        each = each.parent if each.propagate else None


def _takes_own(handler: logging.Handler) -> bool:
    """Whether a handler of user code is to get records of pyserve, which are on the terminal."""
    behind = list(ends(handler))
    on_terminal = [end for end in behind if is_on_terminal(end)]
    if on_terminal and len(on_terminal) == len(behind):
        return False
    # The others get them as they get all records, from the thread that takes them from a queue.
    for end in on_terminal:
        end.addFilter(_is_of_user_code)
    return True


def _is_of_user_code(record: logging.LogRecord) -> bool:
    return not _is_own(record.name)


_STANDARD_DESCRIPTORS = (1, 2)
# Where known wrappers of streams (of codecs, colorama, io) keep what they write to.
_WRAPPED = ("stream", "wrapped", "buffer")
# Handlers behind handlers, and streams in streams; one may contain itself. Arbitrary.
_DEPTH_MAX = 5

_Listener = logging.handlers.QueueListener
_start, _stop = _Listener.start, _Listener.stop
_running: weakref.WeakSet[_Listener] = weakref.WeakSet()
# Device and number of what the standard descriptors were before user code could redirect them.
_standard_files: set[tuple[int, int]] = set()
# Which streams have such a descriptor: system calls for each record would double its cost.
_judged: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def watch_destinations() -> None:
    """Remember the standard streams, and from now on which listeners of queues run.

    A ``QueueHandler`` does not know who takes records from its queue.
    """
    for descriptor in _STANDARD_DESCRIPTORS:
        with contextlib.suppress(OSError):
            _standard_files.add(_identity(descriptor))
    # Lines that go there are seen nowhere.
    _standard_files.discard(_identity(os.devnull))
    _Listener.start = _started  # type: ignore[method-assign]
    _Listener.stop = _stopped  # type: ignore[method-assign]


def forget_destinations() -> None:
    """Undo ``watch_destinations``; for tests."""
    _Listener.start, _Listener.stop = _start, _stop  # type: ignore[method-assign]
    _standard_files.clear()
    _judged.clear()
    _running.clear()


def ends(handler: logging.Handler, depth: int = 0) -> Iterator[logging.Handler]:
    """Yield the handlers that write the records of a handler: itself, or those behind it.

    There are none if it hands them on to somebody unknown, as to another process.
    """
    behind = _behind(handler)
    if behind is None:
        yield handler
    elif depth < _DEPTH_MAX:
        for each in behind:
            yield from ends(each, depth + 1)


def is_on_terminal(handler: logging.Handler) -> bool:
    """Whether a handler writes to a standard stream itself."""
    # User code may have written both, and they may raise anything.
    try:
        # A handler of rich has a console in place of a stream.
        console = getattr(handler, "console", None)
        return _is_standard(getattr(console, "file", None) or getattr(handler, "stream", None))
    except Exception:
        return False


def _behind(handler: logging.Handler) -> list[logging.Handler] | None:
    if isinstance(handler, logging.handlers.QueueHandler):
        listeners = [each for each in tuple(_running) if each.queue is handler.queue]
        return [each for listener in listeners for each in listener.handlers]
    if isinstance(handler, logging.handlers.MemoryHandler):
        return [] if handler.target is None else [handler.target]
    return None


def _is_standard(stream: Any, depth: int = 0) -> bool:
    if stream is None or depth == _DEPTH_MAX:
        return False
    if stream in (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__):
        return True
    found = _has_standard_descriptor(stream)
    if found is not None:
        return found
    return any(_is_standard(getattr(stream, name, None), depth + 1) for name in _WRAPPED)


def _has_standard_descriptor(stream: Any) -> bool | None:
    """Return whether it has one; ``None``: it is not a file, and may write to several."""
    if not isinstance(stream, io.IOBase):
        return None
    found = _judged.get(stream)
    if found is None:
        try:
            found = _judged[stream] = _identity(stream.fileno()) in _standard_files
        except (OSError, ValueError):  # It has no descriptor, or is closed.
            return None
    return found


def _identity(file: int | str) -> tuple[int, int]:
    found = os.stat(file)  # noqa: PTH116  # of a descriptor too
    return found.st_dev, found.st_ino


@functools.wraps(_start)
def _started(self: _Listener) -> None:
    _start(self)
    _running.add(self)


@functools.wraps(_stop)
def _stopped(self: _Listener) -> None:
    _running.discard(self)
    _stop(self)
