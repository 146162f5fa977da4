"""Where in user code an exception was raised: what its author has to look at."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

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


def text_of(error: BaseException) -> str:
    """Return the text of an exception of user code, whatever its ``__str__`` does."""
    try:
        return str(error)
    except Exception as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def format_from_user_code(error: BaseException) -> str:
    """Return the traceback without frames of this package, or all of it if there is nothing else.

    The same is true of each exception that it came from.
    """
    found = traceback.TracebackException.from_exception(error)
    for each in _with_causes(found):
        of_users = [frame for frame in each.stack if is_user_code(frame.filename)]
        # A file that cannot be parsed has no frame: a SyntaxError shows its line by itself. It is
        # known by its place, since Python 3.13 has deprecated `exc_type`.
        kept = of_users if of_users or hasattr(each, "filename") else each.stack
        each.stack = traceback.StackSummary.from_list(kept)
    return "".join(found.format())


def _with_causes(
    found: traceback.TracebackException | None,
) -> Iterator[traceback.TracebackException]:
    if found is not None:
        yield found
        for each in (found.__cause__, found.__context__, *(found.exceptions or ())):
            yield from _with_causes(each)
