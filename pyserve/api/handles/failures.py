"""How the exception of user code crosses the mesh: as plain data, never as a pickle.

``encode_failure`` runs in the replica, ``rebuild`` at the caller. An exception keeps its type if
the caller can import that type, or has received it with the code of a script or a notebook. Values
in it that are not plain arrive as their ``repr``. Else the caller gets a ``RemoteError`` with the
exception's name and text. It also carries the exception on to a further process that may have the
type. Both have the traceback of the replica as ``remote_traceback``.

Results may be pickles, but failures never are: a call that has chosen another codec must not have
to unpickle because it fails, and the trailers of a service are user data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyserve.api.handles.failure_state import (
    Parts,
    call_status,
    has_setter,
    made_by_base,
    made_of_status,
    members_of,
    put_args,
    put_cause,
    put_note,
    put_state,
    put_traceback,
)
from pyserve.api.handles.failure_values import (
    DEPTH_MAX,
    Rebuild,
    Repr,
    Values,
    cut,
    cut_ends,
    exact,
    imported,
    pack,
    shortened,
    shown,
)
from pyserve.api.pickling import class_of_code, id_in_code
from pyserve.errors import Abort, RemoteError
from pyserve.observe.failures import ANSWER_MARK, format_from_user_code, has_text, text_of

FAILURE_KEY = "handle-error-bin"
"""The trailer that carries a failure; only framed calls, which are those of handles, get one.

Not one of ``pyserve-*``, which the routers take away, also from the calls of handles.
"""

FAILURE_BYTES_MAX = 8 * 1024
"""All metadata of a call has 16 KiB; base64 makes a third more of this, the rest is the user's."""

_FIELDS_BYTES_MAX = FAILURE_BYTES_MAX * 3 // 4  # The traceback has the rest.
_TEXT_CHARACTERS_MAX = 1500
_NAME_CHARACTERS_MAX = 300
_NOTES_MAX = 8
_NOTE_CHARACTERS_MAX = 200
_NOTE_BYTES_MAX = 600  # of a note that is no plain text
_CUT_CHARACTERS = (1500, 700, 300, 100)  # of each text of an exception that is too large
_VALUE_BYTES_MAX = _FIELDS_BYTES_MAX // 3  # of each value that is no text
# An exception inside of another one: without a traceback, since both share the room.
_NESTED_BYTES_MAX = FAILURE_BYTES_MAX // 4
_NOTHING_KEPT: Mapping[str, object] = {"args": None, "state": None, "members": None}
_FAILURE = "_pyserve_failure"  # What a RemoteError was made of, for the next process.
_SHOWN = "_pyserve_shown"  # What the repr of a RemoteError inside of an exception is.
_OF_THIS_PROCESS = ("__notes__", "remote_traceback", ANSWER_MARK, _FAILURE, _SHOWN)
# Python's own descriptors: a metaclass may have others.
_MODULE: Any = vars(type)["__module__"]
_QUALNAME: Any = vars(type)["__qualname__"]


class RemoteTraceback(Exception):
    """The cause of a rebuilt exception: what its traceback was where it was raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def encode_failure(error: BaseException) -> bytes:
    """Return an exception as at most ``FAILURE_BYTES_MAX`` bytes for the trailer.

    Long texts are cut; the beginning and the end of the traceback stay. Never fails: of an
    exception that cannot be read, its type and its text are left.
    """
    try:
        data = _encoded(error)
    # Any step may run the user's code, and a call whose failure has no description would not get
    # its own exception.
    except BaseException:
        return _bare(error)
    return data if len(data) <= FAILURE_BYTES_MAX else _bare(error)


def _bare(error: BaseException) -> bytes:
    kind = type(error)
    text = cut(text_of(error), _CUT_CHARACTERS[1])
    return pack({"type": _name_of(kind), "text": text, "abort": issubclass(kind, Abort)})


def _name_of(kind: type) -> str:
    module: object = _MODULE.__get__(kind)
    place = exact(module) if isinstance(module, str) else "unknown"
    return cut(f"{place}:{exact(_QUALNAME.__get__(kind))}", _NAME_CHARACTERS_MAX)


def _encoded(error: BaseException) -> bytes:
    if type(error) is Abort:  # The status itself says everything.
        return pack({"abort": True})
    came = vars(error).get(_FAILURE) if isinstance(error, RemoteError) else None
    if isinstance(came, bytes):  # From further away: as it was there.
        return bytes(came)
    if isinstance(error, RemoteError):
        return _with_traceback(
            {
                "type": cut(str(error.type_name), _NAME_CHARACTERS_MAX),
                "text": cut(str(error.message), _TEXT_CHARACTERS_MAX),
            },
            exact(str(error.remote_traceback)),
        )
    # The members of a group are what it is for, so they may have all the room.
    values = _ROOMY if isinstance(error, BaseExceptionGroup) else _VALUES
    full = _described(error, DEPTH_MAX, values)
    if len(pack(full)) > _FIELDS_BYTES_MAX:
        full = _described(error, DEPTH_MAX, _SPARING)
    if isinstance(error, Abort):
        full["abort"] = True
    data = pack(full)
    if len(data) > _FIELDS_BYTES_MAX:
        # As it was left behind: its constructor would compute with values that are whole.
        left = {**full, "maker": "", **_fields_of(_args(error), vars(error), DEPTH_MAX, _SPARING)}
        short = shortened(left, _FIELDS_BYTES_MAX, _CUT_CHARACTERS)
        # Many arguments: the text has to do.
        full = short or {**full, "notes": [], **_NOTHING_KEPT}
    return _with_traceback(full, format_from_user_code(error))


def _described(error: BaseException, depth: int, values: Values) -> dict[str, object]:
    kind = type(error)
    said: dict[str, object] = {
        "type": _name_of(kind),
        "class": id_in_code(kind),
        "text": cut(text_of(error), _TEXT_CHARACTERS_MAX),
    }
    try:
        found = {**said, "notes": _notes(error, values), **_state(error, depth, values)}
        pack(found)
    except BaseException:  # Any attribute of it may be code of the user's.
        return {**said, "notes": [], **_NOTHING_KEPT}
    return found


def _nested(error: Exception, depth: int, values: Values) -> bytes:
    """Return an exception that another one has as an argument: one of a group, for example."""
    came = vars(error).get(_FAILURE) if isinstance(error, RemoteError) else None
    if isinstance(came, bytes) and len(came) <= _NESTED_BYTES_MAX:
        return bytes(came)
    full = {**_described(error, depth, values), **_shown_as(error)}
    data = pack(full)
    if len(data) <= (_FIELDS_BYTES_MAX if values is _ROOMY else _NESTED_BYTES_MAX):
        return data
    if values is not _SPARING:
        return _nested(error, depth, _SPARING)
    text = cut(text_of(error), _CUT_CHARACTERS[1])
    return pack({**full, "text": text, "notes": [], **_NOTHING_KEPT})


def _shown_as(error: Exception) -> dict[str, object]:
    """Return the ``repr`` of an exception, if it is not that of its type and its text."""
    try:
        text = cut(repr(error), _CUT_CHARACTERS[2])
    except BaseException:  # Users'.
        return {}
    usual = _usual_repr(_name_of(type(error)), text_of(error))
    return {} if text == usual else {"shown": text}


def _usual_repr(name: str, text: str) -> str:
    kind = name.rpartition(":")[2].rpartition(".")[2]
    return f"{kind}({text!r})" if text else f"{kind}()"


def is_abort(data: bytes) -> bool:
    """Tell whether a failure says that user code chose the status by ``pyserve.Abort``."""
    return bool(_unpacked(data).get("abort"))


def rebuild_abort(data: bytes, abort: Abort) -> Abort:
    """Return an exception of the subclass of ``Abort`` that was raised, or ``abort`` itself."""
    found = rebuild(data) if "type" in _unpacked(data) else abort
    return found if isinstance(found, Abort) else abort


def rebuild(data: bytes) -> Exception:
    """Return the exception that a failure describes, ready to be raised.

    Nothing is unpickled: the type is imported by name, has to be an ``Exception``, and is made
    from plain values. Where there is no such type, a ``RemoteError`` is returned, and in the
    place of ``StopIteration`` and ``StopAsyncIteration`` a ``RuntimeError`` that came from it.
    """
    return _raisable(_rebuilt(data, _unpacked(data), lambda: _fields(data, _AS_SHOWN)))


def _rebuilt(
    data: bytes, fields: Mapping[str, object], as_shown: _AsShown | None = None
) -> Exception:
    name, text = str(fields.get("type", "unknown")), str(fields.get("text", ""))
    trace = str(fields.get("traceback", ""))
    error = _same_type(name, text, fields, as_shown)
    if error is None:
        error = RemoteError(name, text, trace)
        error.__dict__[_FAILURE] = data
    else:
        if trace:  # An exception inside of another one has none of its own.
            put_cause(error, RemoteTraceback(trace))
        put_traceback(error, trace)
    notes = fields.get("notes")
    for note in notes if isinstance(notes, list) else ():
        # Values of subclasses of texts stay what they are; what stands for a value is its text.
        plain = not isinstance(note, str) or isinstance(note, Repr)
        put_note(error, str(note) if plain else note)
    return error


def _raisable(error: Exception) -> Exception:
    """Return the exception, or one in the place of those that mean the end of an iteration.

    Raised by a call, they would end whatever loop or coroutine it is made in, without an error.
    (So does PEP 479 with those that leave a generator.)
    """
    if not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    instead = RuntimeError(f"the call raised {type(error).__name__}")
    instead.__cause__ = error
    instead.__dict__["remote_traceback"] = vars(error).get("remote_traceback", "")
    return instead


def _with_traceback(fields: dict[str, object], trace: str) -> bytes:
    room = FAILURE_BYTES_MAX - len(pack(fields)) - 32  # for the key and the text's length
    return pack({**fields, "traceback": cut_ends(trace, room)})


def _state(error: BaseException, depth: int, values: Values) -> dict[str, object]:
    """Return what the type needs to make the exception again."""
    if (status := call_status(error)) is not None:
        return {"args": [], "state": {}, "members": {}, "status": status}
    maker, arguments, kept, sets, state = "", _args(error), vars(error), False, None
    try:
        reduced: Any = error.__reduce__()
        made_by = reduced[0]
        # A class method of the type makes those whose constructor does not, pydantic's for example.
        is_own = getattr(made_by, "__self__", None) is type(error)
        if made_by is type(error) or is_own:
            maker = exact(made_by.__name__) if is_own else ""
            arguments = arguments if isinstance(error, UnicodeDecodeError) else tuple(reduced[1])
            state = reduced[2] if len(reduced) > 2 else None
            kept = state if isinstance(state, dict) else {} if state is None else kept
            sets = state is not None and has_setter(type(error))
    except BaseException:  # noqa: S110  # The user's own; what every exception has has to do.
        pass
    members = members_of(error, arguments)
    return {
        **_fields_of(arguments, kept, depth, values),
        **({"maker": maker} if maker else {}),
        **({"set": [_plain(state, depth, values)]} if sets else {}),
        "members": {exact(name): _plain(each, depth, values) for name, each in members.items()},
    }


def _args(error: BaseException) -> tuple[object, ...]:
    args = error.args
    if isinstance(error, UnicodeDecodeError) and len(args) == 5 and type(args[1]) is bytes:
        # It cannot be made of a text in place of the bytes, which may be a whole document.
        return (args[0], args[1][: _VALUE_BYTES_MAX // 2], *args[2:])
    return args


def _fields_of(
    arguments: Iterable[object], state: Mapping[str, object], depth: int, values: Values
) -> dict[str, object]:
    return {
        "args": [_plain(each, depth, values) for each in arguments],
        "state": {
            exact(str(key)): _plain(value, depth, values)
            for key, value in state.items()
            if key not in _OF_THIS_PROCESS and not isinstance(value, Parts)
        },
    }


def _plain(value: object, depth: int, values: Values) -> object:
    found = values.plain(value, depth)
    room = _FIELDS_BYTES_MAX if values is _ROOMY else _VALUE_BYTES_MAX
    if isinstance(value, str) or len(pack(found)) <= room:
        return found
    return shown(value) if values is _SPARING else _plain(value, depth, _SPARING)


_AsShown = Callable[[], Mapping[str, object]]
"""Returns the fields again, where what shows as another text in this process is a ``Repr``."""


def _same_type(
    name: str, text: str, fields: Mapping[str, object], as_shown: _AsShown | None
) -> Exception | None:
    found = _type_of(name, fields.get("class"))
    if found is None:
        return None
    same = fields.get("same_characters")
    end = same if isinstance(same, int) and same > 0 else _TEXT_CHARACTERS_MAX
    others: dict[_Make, Exception] = {}
    ways = (_made_anew, _made_as_it_was, _made_as_shown, _made_of_text)
    for make in (made_of_status,) if "status" in fields else ways:
        try:
            given = fields if make is not _made_as_shown or as_shown is None else as_shown()
            error = make(found, given)
            if cut(text_of(error), _TEXT_CHARACTERS_MAX)[:end] == text[:end]:
                return error
            others[make] = error
        except Exception:  # noqa: S112  # A constructor of the user's with other parameters.
            continue
    for make in (_made_as_it_was, _made_of_text, _made_anew, made_of_status):
        if make in others and has_text(others[make]) and (text_of(others[make]) or not text):
            put_note(others[make], f"Where it was raised, its text was: {text}")
            return others[make]
    return _saying(found, text, fields) if others else None


def _saying(kind: type[Exception], text: str, fields: Mapping[str, object]) -> Exception | None:
    """Return an exception whose type cannot make its text of what has come.

    It is of a subclass that has the text. Whoever catches the type, or sends the exception on,
    finds the type.
    """
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
    for make in (_made_as_it_was, _made_of_text):
        try:
            saying = type(kind.__name__, (kind,), {**names, "__str__": lambda _self: text})
            return make(saying, fields)
        except Exception:  # noqa: S112  # What makes subclasses is the user's, too.
            continue
    return None


_Make = Callable[[type[Exception], Mapping[str, Any]], Exception]


def _made_anew(kind: type[Exception], fields: Mapping[str, Any]) -> Exception:
    make: Callable[..., object] = kind
    if maker := fields.get("maker"):
        make = getattr(kind, str(maker))
        if getattr(make, "__self__", None) is not kind:
            raise TypeError(f"{maker} is no class method")
    error = make(*fields["args"])
    if not isinstance(error, kind):
        raise TypeError(f"{maker} makes something else")
    _put(error, fields)
    return error


def _made_as_it_was(kind: type[Exception], fields: Mapping[str, Any]) -> Exception:
    # Constructors that build their text from other parameters: what they have left behind is
    # put in place without running them again.
    error = made_by_base(kind, tuple(fields["args"]))
    _put(error, fields)
    return error


def _made_as_shown(kind: type[Exception], fields: Mapping[str, Any]) -> Exception:
    # A value that shows as another text here, since its class is not known, is one of many maybe:
    # the others stay. Constructors need not take what stands for it.
    return _made_as_it_was(kind, fields)


def _put(error: Exception, fields: Mapping[str, Any]) -> None:
    members = fields.get("members") or {}
    if "set" in fields and has_setter(type(error)):
        error.__setstate__(fields["set"][0])
        put_state(error, {}, members)
    else:
        put_state(error, fields["state"], members)


def _made_of_text(kind: type[Exception], fields: Mapping[str, Any]) -> Exception:
    # Its arguments were too large.
    text = str(fields.get("text", ""))
    error: Exception = kind.__new__(kind)
    put_args(error, (Repr(text, text),))
    put_state(error, fields.get("state") or {}, fields.get("members") or {})
    return error


def _type_of(name: str, class_id: object) -> type[Exception] | None:
    try:
        found = imported(name)
    except Exception:  # Not importable here: a script's, maybe.
        found = None
    if found is None and isinstance(class_id, str):
        found = class_of_code(class_id)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _notes(error: BaseException, values: Values) -> list[object]:
    notes = vars(error).get("__notes__")
    if not isinstance(notes, list):  # Anything may have been put there.
        return []
    first = list.__getitem__(notes, slice(_NOTES_MAX))
    return [_note(each, values) for each in first if isinstance(each, str)]


def _note(note: str, values: Values) -> object:
    if type(note) is not str and values is not _SPARING:
        found = values.plain(note)
        if len(pack(found)) <= _NOTE_BYTES_MAX:
            return found
    return cut(note, _NOTE_CHARACTERS_MAX)


def _unpacked(data: bytes) -> dict[str, object]:
    return _fields(data, _VALUES)


def _fields(data: bytes, values: Values) -> dict[str, object]:
    try:
        fields = values.unpack(data)
    except Exception:  # msgpack raises several kinds; a garbled trailer is a failure all the same.
        return {"text": "its description could not be read"}
    return fields if isinstance(fields, dict) else {"text": "its description is no map"}


def _rebuild_nested(data: bytes) -> Exception:
    fields = _unpacked(data)
    error = _rebuilt(data, fields)
    if isinstance(error, RemoteError) and _FAILURE in vars(error):
        error.__dict__[_SHOWN] = str(
            fields.get("shown") or _usual_repr(error.type_name, error.message)
        )
    return error


def _shown_nested(data: bytes) -> object:
    error = _rebuild_nested(data)
    if isinstance(error, RemoteError) and _SHOWN in vars(error):
        return Repr(repr(error), error.message)
    return error


def _values(rebuild: Rebuild = _rebuild_nested, *, as_shown: bool = False) -> Values:
    def nested(error: Exception, depth: int) -> bytes:
        return _nested(error, depth, made)

    made = Values(nested, rebuild, as_shown=as_shown)
    return made


_VALUES = _values()
_ROOMY = _values()  # One value may have all the room.
_SPARING = _values()  # Notes are plain texts.
_AS_SHOWN = _values(_shown_nested, as_shown=True)  # What shows otherwise here is a Repr.
