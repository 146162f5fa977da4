"""Where the handlers of user code write: whether a record that they get is on the terminal.

A handler shows a record on the terminal if it writes to a standard stream, by whatever object, or
if it hands records on to a handler that does.
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
from collections.abc import Iterator
from typing import Any

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
