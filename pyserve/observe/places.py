"""Where in user code an exception was raised: what its author has to look at."""

from __future__ import annotations

import importlib
import os
import traceback
from pathlib import Path
from types import TracebackType

# By this package's own directory, not by its name: users have folders of that name too.
_NOT_USER_CODE = (f"{Path(__file__).parent.parent}{os.sep}", importlib.__file__, "<frozen ")


def is_user_code(filename: str) -> bool:
    """Tell whether a frame's file is neither of this package nor of the import machinery."""
    return not filename.startswith(_NOT_USER_CODE)


def describe(error: BaseException) -> str:
    """Return ``Type: text (at file:line)`` with the innermost place in user code, if there is one.

    Of a ``SyntaxError`` that is the file that cannot be parsed.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} (at {error.filename}:{error.lineno})"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)
    ]
    place = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def format_from_user_code(error: BaseException) -> str:
    """Return the traceback from the first frame of user code on, or all of it without one."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and not is_user_code(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
