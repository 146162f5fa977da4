"""An exception of its own for each of the calls that fail together.

Whoever catches an exception may add a note to it, and raises others with it as their context. With
one object for all calls of a batch, that would reach the clients of other calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

Raised = TypeVar("Raised", bound=BaseException)

# Attributes of the types of Python that are not in ``args``.
_MEMBERS = (
    *("name", "path", "obj", "value", "code"),
    *("errno", "strerror", "filename", "filename2", "characters_written"),
    *("msg", "lineno", "offset", "text", "end_lineno", "end_offset", "print_file_and_line"),
    *("encoding", "object", "start", "end", "reason"),
)
_MISSING = object()


class Separate:
    """Gives an exception away once, and then others that are like it."""

    def __init__(self) -> None:
        self._given: dict[int, BaseException] = {}

    def __call__(self, error: Raised) -> Raised:
        """Return ``error`` the first time, and afterwards one that nobody else has."""
        if id(error) in self._given:
            return separate(error)
        self._given[id(error)] = error  # So that no other one gets its id meanwhile.
        return error


def separate(error: Raised) -> Raised:
    """Return an exception of the same type and content that nobody else has.

    No code of the user's runs, its constructor included. Notes are a list of their own; the
    traceback, the cause and the context are those of ``error``. An exception whose type does not
    allow that, such as one written in C, is returned itself.
    """
    kind = type(error)
    base = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    try:
        copy = base.__new__(kind, *error.args)
        base.__init__(copy, *error.args)  # type: ignore[misc]  # that of Python, not the user's
        _copy_members(error, copy)
    except Exception:  # Its type has rules that nobody knows here.
        return error
    copy.__dict__.update(error.__dict__)
    if "__notes__" in copy.__dict__:
        copy.__notes__ = list(error.__notes__)
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    made: Raised = copy.with_traceback(error.__traceback__)
    return made


def _copy_members(error: BaseException, copy: BaseException) -> None:
    for name in (*_MEMBERS, *_slots(type(error))):
        value = getattr(error, name, _MISSING)
        if value is not _MISSING and getattr(copy, name, _MISSING) is not value:
            try:
                setattr(copy, name, value)
            except AttributeError:  # A property of the user's, made of what is copied anyway.
                continue


def _slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
