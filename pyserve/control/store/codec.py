"""Records as bytes and back: JSON by the types of their fields, and specs as they travel. Pure.

Unknown fields are ignored and missing ones get their defaults, so that a file can be read by the
releases after and before the one that wrote it.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import types
import typing
from typing import Any

import orjson

from pyserve.config.parts import Part
from pyserve.control.store.records import TYPES, Record, SpecRecord, Table
from pyserve.wire.v1 import mesh_pb2


def encode(record: Record) -> bytes:
    """Return the bytes of a record."""
    if isinstance(record, SpecRecord):
        return record.spec.SerializeToString()
    return orjson.dumps(record, default=_encode_other)


def decode(table: Table, value: bytes) -> Record:
    """Return the record of those bytes.

    Raises:
        ValueError: they are not a record of that table.
    """
    if TYPES[table] is SpecRecord:
        return SpecRecord(mesh_pb2.DeploymentSpec.FromString(value))
    try:
        record: Record = _read(TYPES[table], orjson.loads(value))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a record of {table.value!r}: {error}") from error
    return record


def _encode_other(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"records hold no {type(value).__name__}")


# Any: what JSON holds, and what the types say that it is.
def _read(kind: Any, value: Any) -> Any:
    if isinstance(kind, typing.NewType):
        return _read(kind.__supertype__, value)
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        (other,) = (each for each in typing.get_args(kind) if each is not type(None))
        return None if value is None else _read(other, value)
    if origin is tuple:
        item, *_ = typing.get_args(kind)
        return tuple(_read(item, each) for each in value)
    if isinstance(kind, type) and issubclass(kind, Part):
        return kind.of(kind.__name__, value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        fields = _fields(kind)
        return kind(**{name: _read(fields[name], value[name]) for name in fields if name in value})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is bytes:
        return base64.b64decode(value)
    if kind is float:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, str) and isinstance(value, str):
        return kind(value)
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    assert dataclasses.is_dataclass(kind), "asked for data classes only"
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}
