"""Random messages and near misses of them, for comparing two conversions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from tests.mesh.json import forms_pb2

if TYPE_CHECKING:
    # Which of two kinds the library gives says nothing to its users.
    FieldDescriptor = Any

_DOUBLES: Final = (0.0, -0.0, 1.5, 1e22, -1e-7, 5e-324, 1.7976931348623157e308, float("nan"))
_FLOATS: Final = (0.0, -0.0, 1.100000023841858, 3.4028234663852886e38, float("inf"), float("-inf"))
_TEXTS: Final = ("", "a", 'quote " and \\', "é☃😀", "\x00\n\x7f", "NaN", "@type", "a.b")
_BYTES: Final = (b"", b"\x00", b"\xff\xfe\xfd", b"abcd")
_DEPTH_MAX: Final = 2

_FORMS: Final = "google.protobuf."

_Message = TypeVar("_Message", bound=message.Message)


def holder(choices: random.Random, depth: int = 0) -> forms_pb2.Holder:
    """Return a message with some of all fields, and values at their ends."""
    return _message(forms_pb2.Holder(), choices, depth)


def _message(into: _Message, choices: random.Random, depth: int) -> _Message:
    if into.DESCRIPTOR.full_name.startswith(_FORMS):
        _fill_form(into, choices, depth)
        return into
    fields = into.DESCRIPTOR.fields
    count = choices.randint(0, len(fields) if depth == 0 else 4)
    for field in choices.sample(list(fields), min(count, len(fields))):
        _fill(into, field, choices, depth)
    return into


def _fill(
    into: message.Message, field: FieldDescriptor, choices: random.Random, depth: int
) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        for _ in range(choices.randint(0, 3)):
            _entry(getattr(into, field.name), key, value, choices, depth)
    elif field.is_repeated:
        for _ in range(choices.randint(0, 3)):
            if kind is not None:
                _message(getattr(into, field.name).add(), choices, depth + 1)
            else:
                getattr(into, field.name).append(_scalar(field, choices))
    elif kind is not None:
        getattr(into, field.name).SetInParent()
        if depth <= _DEPTH_MAX or kind.full_name.startswith(_FORMS):
            _message(getattr(into, field.name), choices, depth + 1)
    else:
        setattr(into, field.name, _scalar(field, choices))


def _entry(
    entries: Any, key: FieldDescriptor, value: FieldDescriptor, choices: random.Random, depth: int
) -> None:
    name = _scalar(key, choices)
    if value.message_type is not None:
        _message(entries[name], choices, depth + 1)
    else:
        entries[name] = _scalar(value, choices)


def _scalar(field: FieldDescriptor, choices: random.Random) -> Any:
    types = type(field)
    bits = 64 if field.cpp_type in {types.CPPTYPE_INT64, types.CPPTYPE_UINT64} else 32
    of_kind: dict[int, tuple[Any, ...]] = {
        types.CPPTYPE_DOUBLE: _DOUBLES,
        types.CPPTYPE_FLOAT: _FLOATS,
        types.CPPTYPE_BOOL: (True, False),
        types.CPPTYPE_ENUM: (0, 1, -2, 77) if field.name == "colour_field" else (0,),
        types.CPPTYPE_STRING: _BYTES if field.type == types.TYPE_BYTES else _TEXTS,
    }
    is_unsigned = field.cpp_type in {types.CPPTYPE_UINT32, types.CPPTYPE_UINT64}
    first, last = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return choices.choice(of_kind.get(field.cpp_type, (first, last, 0, 1)))


def _fill_form(into: message.Message, choices: random.Random, depth: int) -> None:
    match into:
        case any_pb2.Any():
            if depth <= _DEPTH_MAX and choices.random() < 0.8:
                into.Pack(_packed(choices, depth))
        case duration_pb2.Duration():
            seconds = choices.choice((0, 1, 315_576_000_000))
            sign = choices.choice((1, -1))
            into.seconds, into.nanos = sign * seconds, sign * choices.choice((0, 1, 5_000_000))
        case timestamp_pb2.Timestamp():
            into.seconds = choices.choice((0, -1, -62_135_596_800, 253_402_300_799, 951_782_400))
            into.nanos = choices.choice((0, 1, 1000, 999_000_000))
        case field_mask_pb2.FieldMask():
            into.paths.extend(choices.sample(["a", "b_c", "d.e_f", "g1"], choices.randint(0, 3)))
        case struct_pb2.Struct() | struct_pb2.ListValue() | struct_pb2.Value():
            _fill_json(into, choices, depth)
        case empty_pb2.Empty():
            pass
        case _:
            _fill(into, into.DESCRIPTOR.fields_by_name["value"], choices, depth)


def _fill_json(into: message.Message, choices: random.Random, depth: int) -> None:
    match into:
        case struct_pb2.Struct():
            for name in choices.sample(_TEXTS, choices.randint(0, 3)):
                _fill_json(into.fields[name], choices, depth + 1)
        case struct_pb2.ListValue():
            for _ in range(choices.randint(0, 3)):
                _fill_json(into.values.add(), choices, depth + 1)
        case struct_pb2.Value():
            kind = choices.randint(0, 5 if depth <= _DEPTH_MAX else 3)
            match kind:
                case 0:
                    into.null_value = struct_pb2.NULL_VALUE
                case 1:
                    into.number_value = choices.choice(_DOUBLES[:-1])
                case 2:
                    into.string_value = choices.choice(_TEXTS)
                case 3:
                    into.bool_value = choices.choice((True, False))
                case 4:
                    into.struct_value.SetInParent()
                    _fill_json(into.struct_value, choices, depth + 1)
                case _:
                    into.list_value.SetInParent()
                    _fill_json(into.list_value, choices, depth + 1)


def _packed(choices: random.Random, depth: int) -> message.Message:
    kinds: tuple[type[message.Message], ...] = (
        forms_pb2.Holder,
        forms_pb2.Choice,
        any_pb2.Any,
        duration_pb2.Duration,
        timestamp_pb2.Timestamp,
        field_mask_pb2.FieldMask,
        empty_pb2.Empty,
        struct_pb2.Struct,
        struct_pb2.Value,
        struct_pb2.ListValue,
        wrappers_pb2.DoubleValue,
        wrappers_pb2.Int64Value,
        wrappers_pb2.BoolValue,
        wrappers_pb2.BytesValue,
    )
    return _message(choices.choice(kinds)(), choices, depth + 1)
