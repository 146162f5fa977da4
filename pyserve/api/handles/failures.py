"""How the exception of user code crosses the mesh: as plain data, never as a pickle.

``encode_failure`` runs in the replica, ``rebuild`` at the caller. An exception keeps its type
where that type can be imported and made again from plain arguments; else a ``RemoteError``
carries its name and text. Both have the traceback of the replica as ``remote_traceback``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgpack

from pyserve.errors import Abort, RemoteError
from pyserve.observe.failures import ANSWER_MARK
from pyserve.observe.places import format_from_user_code, text_of

FAILURE_KEY = "handle-error-bin"
"""The trailer that carries a failure; only framed calls, which are those of handles, get one.

Not one of ``pyserve-*``, which the routers take away, also from the calls of handles.
"""

FAILURE_BYTES_MAX = 8 * 1024
"""All metadata of a call has 16 KiB; base64 makes a third more of this, the rest is the user's."""

_FIELDS_BYTES_MAX = FAILURE_BYTES_MAX * 3 // 4  # The traceback has the rest.
_TEXT_CHARACTERS_MAX = 1500
_NOTES_MAX = 8
_CUT_CHARACTERS = (1500, 700, 300, 100)  # of each text of an exception that is too large
_TUPLE = 1  # The msgpack extension of a tuple, which exceptions compare their arguments by.
_OF_THIS_PROCESS = ("__notes__", "remote_traceback", ANSWER_MARK)
_SCALARS = (bool, int, float, str, bytes)


class RemoteTraceback(Exception):
    """The cause of a rebuilt exception: what its traceback was where it was raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def encode_failure(error: BaseException) -> bytes:
    """Return an exception as at most ``FAILURE_BYTES_MAX`` bytes for the trailer.

    Long texts are cut; the beginning and the end of the traceback stay.
    """
    if isinstance(error, Abort):  # The status itself says everything.
        return _packed({"abort": True})
    if isinstance(error, RemoteError):  # It has come from further away: as it was there.
        return _with_traceback(
            {"type": error.type_name, "text": _cut(error.message, _TEXT_CHARACTERS_MAX)},
            error.remote_traceback,
        )
    full = {
        "type": _name(type(error)),
        "text": _cut(text_of(error), _TEXT_CHARACTERS_MAX),
        "notes": _notes(error),
        **_state(error),
    }
    data = _packed(full)
    if len(data) > _FIELDS_BYTES_MAX and (cut := _with_cut_texts(full)) is not None:
        full = cut
    elif len(data) > _FIELDS_BYTES_MAX:  # Large arguments of other kinds: the text has to do.
        full.pop("args", None)
        full.pop("state", None)
        full["notes"] = []
    return _with_traceback(full, format_from_user_code(error))


def is_abort(data: bytes) -> bool:
    """Tell whether a failure says that user code chose the status by ``pyserve.Abort``."""
    return bool(_unpacked(data).get("abort"))


def rebuild(data: bytes) -> Exception:
    """Return the exception that a failure describes, ready to be raised.

    Nothing is unpickled: the type is imported by name, has to be an ``Exception``, and is made
    from plain values. Where that does not give the same text, a ``RemoteError`` is returned.
    """
    fields = _unpacked(data)
    name, text = str(fields.get("type", "unknown")), str(fields.get("text", ""))
    trace = str(fields.get("traceback", ""))
    error = _same_type(name, text, fields)
    if error is None:
        error = RemoteError(name, text, trace)
    else:
        error.__cause__ = RemoteTraceback(trace)
        error.__dict__["remote_traceback"] = trace
    notes: Any = fields.get("notes") or ()
    for note in notes:
        error.add_note(str(note))
    return error


def _with_traceback(fields: dict[str, object], trace: str) -> bytes:
    room = FAILURE_BYTES_MAX - len(_packed(fields)) - 32  # for the key and the text's length
    return _packed({**fields, "traceback": _cut_bytes(trace, room)})


def _with_cut_texts(full: dict[str, object]) -> dict[str, object] | None:
    """Shorten the texts of an exception whose arguments are all texts, so that its type stays.

    Returns:
        ``None``: It has other arguments, or too many.
    """
    arguments, state = full.get("args"), full.get("state")
    if not isinstance(arguments, list) or not isinstance(state, dict):
        return None
    if not arguments or not all(isinstance(each, str) for each in arguments):
        return None
    for characters_max in _CUT_CHARACTERS:
        cut = {
            **full,
            "text": _cut(str(full["text"]), characters_max),
            "args": [_cut_noting(each, characters_max) for each in arguments],
            "state": {key: _cut_noting(each, characters_max) for key, each in state.items()},
            # So much of the text is that of the whole exception.
            "same_characters": characters_max - 4,
        }
        for fields in (cut, {**cut, "notes": []}):
            if len(_packed(fields)) <= _FIELDS_BYTES_MAX:
                return fields
    return None


def _cut_noting(value: object, characters_max: int) -> object:
    if not isinstance(value, str) or len(value) <= characters_max:
        return value
    return f"{value[:characters_max]} ... ({len(value) - characters_max} characters cut)"


def _state(error: BaseException) -> dict[str, object]:
    """Return what the type needs to make the exception again, if that is plain data."""
    try:
        reduced = error.__reduce__()
    except Exception:  # The user's own; the text has to do.
        return {}
    if not isinstance(reduced, tuple) or reduced[0] is not type(error):
        return {}
    kept: object = (reduced[2] if len(reduced) > 2 else None) or {}
    if not isinstance(kept, dict):  # For a `__setstate__` of the user's.
        return {}
    state = {key: value for key, value in kept.items() if key not in _OF_THIS_PROCESS}
    if not (_is_plain(reduced[1]) and _is_plain(state)):
        return {}
    return {"args": list(reduced[1]), "state": state}


def _same_type(name: str, text: str, fields: Mapping[str, object]) -> Exception | None:
    found = _import(name)
    arguments, state = fields.get("args"), fields.get("state")
    if found is None or not isinstance(arguments, list) or not isinstance(state, dict):
        return None
    same = fields.get("same_characters")
    end = same if isinstance(same, int) and same > 0 else _TEXT_CHARACTERS_MAX
    for make in (_made_anew, _made_as_it_was):
        try:
            error = make(found, arguments, state)
            if _cut(text_of(error), _TEXT_CHARACTERS_MAX)[:end] == text[:end]:
                return error
        except Exception:  # noqa: S112  # A constructor of the user's with other parameters.
            continue
    return None


def _made_anew(
    kind: type[Exception], arguments: list[object], state: dict[str, object]
) -> Exception:
    error = kind(*arguments)
    error.__dict__.update(state)
    return error


def _made_as_it_was(
    kind: type[Exception], arguments: list[object], state: dict[str, object]
) -> Exception:
    # Constructors that build their text from other parameters: what they have left behind is
    # put in place without running them again.
    error: Exception = kind.__new__(kind, *arguments)
    error.args = tuple(arguments)
    error.__dict__.update(state)
    return error


def _import(name: str) -> type[Exception] | None:
    module_name, _, qualified = name.partition(":")
    try:
        found: object = sys.modules.get(module_name) or importlib.import_module(module_name)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit):  # Not importable here, maybe a script: the text has to do.
        return None
    if isinstance(found, type) and issubclass(found, Exception):
        return found
    return None


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", None)
    if not isinstance(notes, list):  # Anything may have been put there.
        return []
    return [_cut(note, 200) for note in notes[:_NOTES_MAX] if isinstance(note, str)]


def _is_plain(value: object, depth: int = 4) -> bool:
    if value is None or type(value) in _SCALARS:
        return not isinstance(value, int) or -(2**63) <= value < 2**64
    if depth and type(value) in (list, tuple):
        items = cast("Iterable[object]", value)
        return all(_is_plain(item, depth - 1) for item in items)
    if depth and type(value) is dict:
        return all(type(key) is str and _is_plain(item, depth - 1) for key, item in value.items())
    return False


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 4] + " ..."


def _cut_bytes(text: str, size_max: int) -> str:
    """Shorten to so many bytes; a traceback says most where it begins and where it ends."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= size_max:
        return data.decode()
    gap = "\n  ... (cut) ...\n"
    head = size_max // 4
    tail = size_max - head - len(gap)
    return data[:head].decode("utf-8", "ignore") + gap + data[-tail:].decode("utf-8", "ignore")


def _packed(fields: dict[str, object]) -> bytes:
    data: bytes = msgpack.packb(
        fields, default=_extend, strict_types=True, unicode_errors="surrogatepass"
    )
    return data


def _unpacked(data: bytes) -> dict[str, object]:
    try:
        fields = msgpack.unpackb(
            data, ext_hook=_restore, strict_map_key=False, unicode_errors="surrogatepass"
        )
    except Exception:  # msgpack raises several kinds; a garbled trailer is a failure all the same.
        return {"text": "its description could not be read"}
    return fields if isinstance(fields, dict) else {"text": "its description is no map"}


def _extend(value: object) -> msgpack.ExtType:
    if isinstance(value, tuple):
        return msgpack.ExtType(
            _TUPLE,
            msgpack.packb(
                list(value), default=_extend, strict_types=True, unicode_errors="surrogatepass"
            ),
        )
    raise TypeError(f"not plain: {value!r}")


def _restore(code: int, data: bytes) -> object:
    if code != _TUPLE:
        raise ValueError(f"unknown extension {code}")
    return tuple(msgpack.unpackb(data, ext_hook=_restore, unicode_errors="surrogatepass"))
