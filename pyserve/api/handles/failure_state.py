"""Reads and restores the state of an exception outside of its arguments and its ``__dict__``.

``__slots__``, and members of types that are written in C (``ImportError.name``), are not in the
``__dict__``. State is restored without ``__setattr__``: an exception may refuse changes, as frozen
dataclasses do, and need not know of the attributes that Python itself sets on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MemberDescriptorType
from typing import Any

from pyserve.api.handles.failure_values import Repr
from pyserve.errors import RemoteError

_Member = MemberDescriptorType
# Python's own descriptors: a type may override how its attributes are set.
_ARGS: Any = vars(BaseException)["args"]
_CAUSE: Any = vars(BaseException)["__cause__"]
# ``obj`` of an AttributeError does not travel, as in pickles of Python from 3.12 on: its repr would
# be taken for the object.
_LOCAL_MEMBERS = ("obj", "__suppress_context__")
# Of a call that failed inside of the handler: its texts, and either half of its metadata. Each has
# room in the trailer of an exception.
_STATUS_TEXT_MAX = 1500
_METADATA_BYTES_MAX = 1024


def members_of(error: BaseException, arguments: Iterable[object]) -> dict[str, object]:
    """Return the members of an exception, by name.

    Members that the built-in base sets again from the arguments are left out.
    """
    known = tuple(arguments)
    found: dict[str, object] = {}
    for name, member in _members(type(error)).items():
        value = _value(member, error)
        of_base = member.__objclass__.__module__ == "builtins"
        is_set_anew = of_base and any(value is each for each in known)
        if value is not None and not is_set_anew:
            found[name] = value
    return found


def has_setter(kind: type[BaseException]) -> bool:
    """Tell whether a type restores its state itself, by a ``__setstate__`` of its own."""
    return kind.__setstate__ is not BaseException.__setstate__


def put_state(error: BaseException, state: Mapping[str, Any], members: Mapping[str, Any]) -> None:
    """Put back what ``members_of`` has found, and what was in the ``__dict__``."""
    places = _members(type(error))
    for name, value in state.items():
        if name in places:
            _put_member(places[name], error, value)
        else:
            error.__dict__[name] = value
    for name, value in members.items():
        if name in places:
            _put_member(places[name], error, value)


def call_status(error: BaseException) -> list[object] | None:
    """Return the status in an error of grpc's synchronous client, which is the call itself.

    What it tells by its methods is in an object with locks and a connection; ``made_of_status``
    makes an error that tells the same.

    Returns:
        Code, details, debug string, initial and trailing metadata; ``None``: it is no such error,
        or the call goes on.
    """
    channel: Any = sys.modules.get("grpc._channel")
    state: Any = vars(error).get("_state")
    if channel is None or type(state) is not channel._RPCState or state.code is None:  # noqa: SLF001  # no other way
        return None
    return [
        state.code.name,
        _short(state.details),
        _short(state.debug_error_string),
        _sendable(state.initial_metadata),
        _sendable(state.trailing_metadata),
    ]


def made_of_status(kind: type[Exception], fields: Mapping[str, Any]) -> Exception:
    """Return an error of grpc's synchronous client with the ``status`` of ``call_status``.

    Raises:
        Exception: This release of grpc makes its errors otherwise.
    """
    channel: Any = sys.modules["grpc._channel"]
    code, details, debug, *metadata = fields["status"]
    pairs = [tuple((str(key), value) for key, value in each) for each in metadata]
    state = channel._RPCState((), *pairs, channel.grpc.StatusCode[code], details)  # noqa: SLF001  # the same
    state.debug_error_string = debug
    # Those of streams have the call, and what reads its messages, besides.
    others = () if kind is channel._InactiveRpcError else (None, None, None)  # noqa: SLF001  # the same
    make: Any = kind
    error: Exception = make(state, *others)
    return error


def _short(text: object) -> str:
    found = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text or "")
    return found[:_STATUS_TEXT_MAX]


def _sendable(metadata: Iterable[tuple[str, object]] | None) -> list[object]:
    found: list[object] = []
    room = _METADATA_BYTES_MAX
    for key, value in metadata or ():
        room -= len(key) + len(value if isinstance(value, bytes) else str(value))
        if room >= 0:
            found.append([key, value if isinstance(value, bytes) else str(value)])
    return found


def put_args(error: BaseException, arguments: tuple[object, ...]) -> None:
    """Set the arguments."""
    _ARGS.__set__(error, arguments)


def put_cause(error: BaseException, cause: BaseException) -> None:
    """Set the cause, as ``raise error from cause`` does."""
    _CAUSE.__set__(error, cause)


class Parts:
    """Makes the groups that ``except*`` and ``split`` take from a group, with its traceback.

    Python copies the cause to them, and no other attribute. It stands in a group's own
    ``derive``; it does not refer to the group, which would then wait for the garbage collector.
    """

    __slots__ = ("_message", "_trace")

    def __init__(self, message: str, trace: str) -> None:
        self._message = message
        self._trace = trace

    def __call__(self, members: Sequence[Exception]) -> ExceptionGroup[Exception]:
        """Return a group of some of the members."""
        part = ExceptionGroup(self._message, members)
        part.__dict__.update(remote_traceback=self._trace, derive=self)
        return part


def put_traceback(error: BaseException, trace: str) -> None:
    """Set ``remote_traceback``; a group has one that includes those of its members."""
    error.__dict__["remote_traceback"] = trace
    if not isinstance(error, BaseExceptionGroup) or not trace:
        return
    if type(error).derive is BaseExceptionGroup.derive:  # Not one of the user's.
        error.__dict__["derive"] = Parts(error.message, trace)
    for member in error.exceptions:
        # Its text has its traceback, and the text of the group would have this one many times.
        if not isinstance(member, RemoteError):
            put_traceback(member, trace)


def put_note(error: BaseException, note: str) -> None:
    """Add a note."""
    notes = error.__dict__.setdefault("__notes__", [])
    if isinstance(notes, list):  # Anything may be there.
        notes.append(note)


def made_by_base(kind: type[Exception], arguments: tuple[Any, ...]) -> Exception:
    """Return an exception for which only the constructor of its built-in base has run.

    That one sets ``errno``, for example, or the message of an ``ImportError``.
    """
    base: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    error: Exception = base.__new__(kind, *arguments)
    base.__init__(error, *arguments)
    return error


def _members(kind: type) -> dict[str, _Member]:
    return {
        name: member
        for each in reversed(kind.__mro__)
        for name, member in vars(each).items()
        # Those of a group cannot be set, and its arguments have the same exceptions.
        if isinstance(member, _Member)
        and name not in _LOCAL_MEMBERS
        and member.__objclass__ is not BaseExceptionGroup
    }


def _put_member(member: _Member, error: BaseException, value: object) -> None:
    # A placeholder is better than no value, but must not replace a real one.
    if isinstance(value, Repr) and _value(member, error) is not None:
        return
    try:
        member.__set__(error, value)
    except (AttributeError, TypeError):  # Read-only, or for values of another type.
        return


def _value(member: _Member, error: BaseException) -> object:
    try:
        return member.__get__(error)
    except AttributeError:  # A slot without a value.
        return None
