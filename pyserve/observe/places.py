"""Finds the place in user code where an exception was raised, for its author."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
    """Return the traceback without frames of this package, or all of it if there are no others.

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
