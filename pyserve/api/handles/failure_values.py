"""The values that an exception of user code carries, as plain data.

Nothing is pickled: what reads them makes values of kinds that this module knows, members of
enumerations, subclasses of the built-in types and dataclasses that can be imported, and exceptions.
Of any other value its ``repr`` arrives.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import ipaddress
import pathlib
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgpack

from pyserve.api.handles.failure_bases import (
    base_of,
    fields_of,
    items_of,
    of_base,
    of_fields,
    scalar_of,
    state_of,
)

_TUPLE = 1  # The msgpack extension of a tuple, which exceptions compare their arguments by.
_KNOWN = 2  # That of a value of another kind: its kind, and what makes it again.
DEPTH_MAX = 4
# Parts of one value; more do not fit into the 8 KiB of a failure, however small they are.
_VALUES_MAX = 8 * 1024
_TEXT_CHARACTERS_MAX = 500
_INT_MIN, _INT_END = -(2**63), 2**64  # msgpack's
_SCALARS = (str, int, float, bytes)
# Python's own descriptor: a metaclass may have another one.
_NAME: Any = vars(type)["__name__"]
# Kinds that are sent with their texts.
_WITH_TEXTS = frozenset(("enum", "flag", "class", "of", "fields", "numpy"))
# numpy's kinds whose bytes are the value: no objects, no structures.
_NUMPY_KINDS = frozenset("biufcSUmM")


class Repr(str):
    """Stands for a value that could not be sent: it is its ``repr``, and is shown as that."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, shown: str, text: str) -> Repr:
        """Return one with the ``repr`` and the ``str`` of a value."""
        made = super().__new__(cls, shown)
        made._text = text
        return made

    def __repr__(self) -> str:
        return str.__str__(self)

    def __str__(self) -> str:
        return self._text

    def __getattr__(self, name: str) -> Any:
        """Say why the value's own attributes are not there."""
        raise AttributeError(
            f"there is no {name!r}: only the text of {self!r} could be sent with its exception; "
            f"an attribute of the exception itself can have it",
            name=name,
            obj=self,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Repr, (str.__str__(self), self._text)


Nested = Callable[[Exception, int], bytes]
"""Returns an exception, which another one has as an argument, as plain data.

The second argument is for ``plain``: so many levels may follow.
"""
Rebuild = Callable[[bytes], object]
"""Undoes it."""


class Values:
    """Makes plain data of values, and values of it.

    Args:
        nested: For exceptions among them.
        rebuild: The same.
        as_shown: Whether a value that would show as another text arrives as its ``Repr``.
    """

    def __init__(self, nested: Nested, rebuild: Rebuild, *, as_shown: bool = False) -> None:
        self._nested = nested
        self._rebuild = rebuild
        self._as_shown = as_shown

    def plain(self, value: object, depth: int = DEPTH_MAX) -> object:
        """Return a value as ``pack`` takes it; never fails."""
        size = _size(value, depth)
        return shown(value) if size > _VALUES_MAX else self._plain(value, depth)

    def _plain(self, value: object, depth: int) -> object:
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes):
            return value
        if isinstance(value, int) and kind is int:
            return value if _INT_MIN <= value < _INT_END else _known("int", hex(value))
        try:
            return self._of_kind(value, kind, depth)
        # Of subclasses and their reprs anything may come, and users' keys cannot be read.
        except BaseException:
            return shown(value)

    def _of_kind(self, value: Any, kind: type, depth: int) -> object:
        if isinstance(value, enum.Enum):
            if isinstance(value, enum.Flag):  # Several members have no name, or a common one.
                return _known("flag", [_name_of(kind), value.value, *_texts(value)])
            return _known("enum", [_name_of(kind), value.name, *_texts(value)])
        if kind in _SIMPLE:
            return _known(kind.__name__, _SIMPLE[kind][0](value))
        if isinstance(value, pathlib.PurePath):
            return _known("Path", str(value))
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):
            return _of_numpy(value)
        aio = sys.modules.get("grpc.aio")
        if aio is not None and kind is aio.Metadata:
            return _known("metadata", [list(pair) for pair in value])
        if kind is type:
            return _known("class", [_name_of(value), *_texts(value)])
        if kind is not Repr and (found := self._of_scalar(value, kind)) is not None:
            return found
        if not depth:
            return shown(value)
        if kind in (list, tuple, set, frozenset):
            items = [self._plain(each, depth - 1) for each in value]
            if kind is list:
                return items
            if kind is tuple:
                return msgpack.ExtType(_TUPLE, pack(items))
            return _known(kind.__name__, items)
        if kind is dict:
            return self._of_dict(value, depth)
        if isinstance(value, Exception):
            return _known("error", self._nested(value, depth - 1))
        if dataclasses.is_dataclass(kind):
            fields = {name: self._plain(each, depth - 1) for name, each in fields_of(value).items()}
            return _known("fields", [_name_of(kind), fields, *_texts(value)])
        if (base := base_of(kind)) is not None and kind is not Repr:
            parts = [self._plain(each, depth - 1) for each in items_of(value) or ()]
            state = self._plain(state_of(value), depth - 1)
            return _known("of", [_name_of(kind), base.__name__, parts, state, *_texts(value)])
        return shown(value)

    def _of_scalar(self, value: object, kind: type) -> object:
        """Return a value of a subclass of a scalar type; ``None``: it is something else."""
        base = base_of(kind)
        if base not in _SCALARS:
            return None
        scalar = scalar_of(value)
        if base is str and len(scalar) > _TEXT_CHARACTERS_MAX:
            return scalar
        state = self._plain(state_of(value), 1)
        given = [_name_of(kind), base.__name__, self._plain(scalar, 0), state]
        return _known("of", [*given, *_texts(value)])

    def _of_dict(self, value: dict[object, object], depth: int) -> object:
        pairs = [(self._plain(k, depth - 1), self._plain(v, depth - 1)) for k, v in value.items()]
        if all(type(key) is str for key in value):
            return dict(pairs)
        return _known("dict", [item for pair in pairs for item in pair])

    def unpack(self, data: bytes) -> Any:
        """Return what ``pack`` has packed.

        Raises:
            Exception: msgpack's, of several kinds.
        """
        return msgpack.unpackb(
            data, ext_hook=self._restore, strict_map_key=False, unicode_errors="surrogatepass"
        )

    def _restore(self, code: int, data: bytes) -> object:
        if code == _TUPLE:
            return tuple(self.unpack(data))
        if code != _KNOWN:
            raise ValueError(f"unknown extension {code}")
        kind, payload = self.unpack(data)
        if kind == "error" and isinstance(payload, bytes):
            return self._rebuild(payload)
        texts = payload[-2:] if isinstance(payload, list) and len(payload) > 2 else [payload] * 2
        try:
            made = _made(kind, payload)
        except Exception:  # Not here, or of another release: nothing that an exception may fail by.
            return Repr(str(texts[0]), str(texts[1]))
        if self._as_shown and kind in _WITH_TEXTS and _texts(made) != texts:
            return Repr(str(texts[0]), str(texts[1]))
        return made


def pack(value: object) -> bytes:
    """Return plain data as bytes."""
    data: bytes = msgpack.packb(value, strict_types=True, unicode_errors="surrogatepass")
    return data


def shown(value: object, characters_max: int = _TEXT_CHARACTERS_MAX) -> object:
    """Return what arrives as a ``Repr``."""
    return _known("repr", [None, *_texts(value, characters_max)])


def cut(text: str, characters_max: int) -> str:
    """Return the beginning of a text, as a plain one."""
    text = exact(text)
    return text if len(text) <= characters_max else text[: characters_max - 4] + " ..."


def exact(text: str) -> str:
    """Return a text as ``str`` itself, as ``pack`` takes it; subclasses have methods of users."""
    return str.__str__(text)


def _size(value: object, depth: int, count: int = 0) -> int:
    """Return how many values one has in it, or a few more than may be; it may hold itself."""
    count += 1
    if not depth or count > _VALUES_MAX:
        return count
    for each in _inner(value):
        count = _size(each, depth - 1, count)
        if count > _VALUES_MAX:
            break
    return count


def _inner(value: object) -> Iterable[object]:
    try:
        if isinstance(value, Exception):
            return (*value.args, *vars(value).values())
        if dataclasses.is_dataclass(type(value)):
            return fields_of(value).values()
        return items_of(value) or ()
    except BaseException:  # Properties of users.
        return ()


def _texts(value: object, characters_max: int = _TEXT_CHARACTERS_MAX) -> list[str]:
    found = []
    for describe in (repr, str):
        try:
            text = describe(value)
        except BaseException as broken:
            name, why = _NAME.__get__(type(value)), _NAME.__get__(type(broken))
            text = f"<a {name} whose {describe.__name__} raised {why}>"
        found.append(cut(text, characters_max))
    return found


def _known(kind: str, payload: object) -> msgpack.ExtType:
    return msgpack.ExtType(_KNOWN, pack([kind, payload]))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _of_numpy(value: Any) -> object:
    if value.dtype.kind not in _NUMPY_KINDS:
        return shown(value)
    return _known("numpy", [value.dtype.str, value.tobytes(), *_texts(value)])


def _made(kind: object, payload: Any) -> object:
    if kind == "repr":
        return Repr(str(payload[1]), str(payload[2]))
    if kind == "enum":
        return _member(str(payload[0]), str(payload[1]))
    if kind == "flag":
        return _enumeration(str(payload[0]))(payload[1])
    if kind == "class":
        found = imported(str(payload[0]))
        if not isinstance(found, type):
            raise TypeError(f"{payload[0]} is no class")
        return found
    if kind == "of":
        return _of_base(str(payload[0]), str(payload[1]), payload[2], payload[3])
    if kind == "fields":
        return of_fields(imported(str(payload[0])), payload[1])
    if kind == "numpy":
        return _scalar(str(payload[0]), payload[1])
    if kind == "dict":
        return dict(zip(payload[::2], payload[1::2], strict=True))
    return _MAKERS[str(kind)](payload)


def _member(name: str, member: str) -> object:
    return _enumeration(name)[member]


def _enumeration(name: str) -> type[enum.Enum]:
    found = imported(name)
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        raise TypeError(f"{name} is no enumeration")
    return found


def _of_base(name: str, base_name: str, parts: Any, state: Any) -> object:
    try:
        found = imported(name)
    except Exception:
        found, state = None, {}
    return of_base(found, base_name, parts, state)


def _scalar(kind: str, data: bytes) -> object:
    # The package works without numpy; a caller without it gets the value's repr.
    numpy = importlib.import_module("numpy")
    dtype = numpy.dtype(kind)
    if dtype.kind not in _NUMPY_KINDS:
        raise TypeError(f"{kind} is no plain kind of numpy's")
    return numpy.frombuffer(data, dtype, 1)[0]


def imported(name: str) -> object:
    """Return what ``module:qualname`` names.

    Raises:
        Exception: Whatever the module raises, or there is none.
    """
    module_name, _, qualified = name.partition(":")
    try:
        found: object = sys.modules.get(module_name) or importlib.import_module(module_name)
    except SystemExit as error:
        raise ImportError(f"{module_name} is a script") from error
    for part in qualified.split("."):
        found = getattr(found, part)
    return found


def _parts(value: datetime.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _moment(value: Any) -> list[object]:
    """Return a date with a time, or a time: its text, its fold, and the name of its zone."""
    zone = value.tzinfo
    if not isinstance(zone, zoneinfo.ZoneInfo):
        return [value.isoformat(), value.fold, None]
    return [value.replace(tzinfo=None).isoformat(), value.fold, zone.key]


def _to_moment(kind: Any, text: str, fold: int, key: str | None) -> Any:
    made = kind.fromisoformat(text)
    zone = made.tzinfo if key is None else zoneinfo.ZoneInfo(key)
    return made.replace(fold=fold, tzinfo=zone)


def _metadata(pairs: list[list[Any]]) -> object:
    metadata: Any = importlib.import_module("grpc.aio").Metadata
    return metadata(*map(tuple, pairs))


def _pair(value: complex) -> list[float]:
    return [value.real, value.imag]


_SIMPLE: Mapping[type, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    uuid.UUID: (lambda each: each.bytes, lambda data: uuid.UUID(bytes=data)),
    datetime.date: (datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: (_moment, lambda parts: _to_moment(datetime.time, *parts)),
    datetime.datetime: (_moment, lambda parts: _to_moment(datetime.datetime, *parts)),
    datetime.timedelta: (_parts, lambda parts: datetime.timedelta(*parts)),
    decimal.Decimal: (str, decimal.Decimal),
    fractions.Fraction: (str, fractions.Fraction),
    complex: (_pair, lambda pair: complex(*pair)),
    bytearray: (bytes, bytearray),
    **{
        kind: (str, kind)
        for kind in (
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            ipaddress.IPv4Network,
            ipaddress.IPv6Network,
            ipaddress.IPv4Interface,
            ipaddress.IPv6Interface,
        )
    },
}
_COLLECTIONS: Mapping[str, Callable[[Iterable[object]], object]] = {
    "set": set,
    "frozenset": frozenset,
}
_MAKERS: Mapping[str, Callable[[Any], object]] = {
    "int": lambda text: int(text, 16),
    "Path": pathlib.Path,
    "metadata": _metadata,
    **_COLLECTIONS,
    **{kind.__name__: make for kind, (_, make) in _SIMPLE.items()},
}


def shortened(
    fields: dict[str, object], size_max: int, characters: Iterable[int]
) -> dict[str, object] | None:
    """Shorten the texts and bytes of an exception, so that its type and its other values stay.

    Args:
        fields: Its description, with ``args`` and ``state``.
        size_max: How large it may be when it is packed.
        characters: How much of each text may stay, the most first.

    Returns:
        ``None``: It has too many values.
    """
    arguments, state = fields.get("args"), fields.get("state")
    if not isinstance(arguments, list) or not isinstance(state, dict):
        return None
    for characters_max in characters:
        short = {
            **fields,
            "text": cut(str(fields["text"]), characters_max),
            "args": [_short(each, characters_max) for each in arguments],
            "state": _with_short_values(state, characters_max),
            "members": _with_short_values(fields.get("members"), characters_max),
            # So much of the text is that of the whole exception.
            "same_characters": characters_max - 4,
        }
        for each in (short, {**short, "notes": []}):
            if len(pack(each)) <= size_max:
                return each
    return None


def _with_short_values(values: object, characters_max: int) -> dict[str, object]:
    named = values if isinstance(values, dict) else {}
    return {key: _short(each, characters_max) for key, each in named.items()}


def _short(value: object, characters_max: int) -> object:
    if not isinstance(value, str | bytes) or len(value) <= characters_max:
        return value
    if isinstance(value, bytes):
        return value[:characters_max]
    return f"{value[:characters_max]} ... ({len(value) - characters_max} characters cut)"


def cut_ends(text: str, size_max: int) -> str:
    """Shorten to so many bytes; a traceback says most where it begins and where it ends."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= size_max:
        return data.decode()
    gap = "\n  ... (cut) ...\n"
    head = size_max // 4
    tail = size_max - head - len(gap)
    return data[:head].decode("utf-8", "ignore") + gap + data[-tail:].decode("utf-8", "ignore")
