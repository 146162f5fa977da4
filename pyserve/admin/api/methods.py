"""The methods that can be tried, each with a form for its request, from descriptors. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    MethodDescriptor,
)

from pyserve.admin.api.pools import methods_in
from pyserve.admin.context import Described

# Messages may be recursive, and deep ones are filled in as JSON anyway.
_DEPTH_MAX = 4
_FIELDS_MAX = 400
_ENUM_VALUES_MAX = 200
# Types whose JSON is not an object, by the JSON mapping of proto3.
_AS_TEXT = {
    "google.protobuf.Timestamp": "a time, 2026-01-31T12:00:00Z",
    "google.protobuf.Duration": "a duration, 1.5s",
    "google.protobuf.FieldMask": "names of fields, a,b.c",
}
_AS_JSON = {
    "google.protobuf.Struct": "an object",
    "google.protobuf.Value": "any value",
    "google.protobuf.ListValue": "a list",
    "google.protobuf.Any": "an object with @type",
}
_WRAPPERS = "google.protobuf."
_INTEGERS = frozenset({"int32", "sint32", "uint32", "fixed32", "sfixed32"})
_LONGS = frozenset({"int64", "sint64", "uint64", "fixed64", "sfixed64"})
_NAMES: dict[int, str] = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


def methods_of(described: Iterable[Described]) -> list[dict[str, Any]]:
    """Return every method that can be described, with a form for its request."""
    return [_method(each, method) for each in described for method in methods_in(each)]


def _method(described: Described, method: MethodDescriptor) -> dict[str, Any]:
    budget = _Budget(_FIELDS_MAX)
    return {
        "kind": "rpc",
        "application": described.application,
        "deployment": described.deployment,
        "service": method.containing_service.full_name,
        "method": method.name,
        "path": f"/{method.containing_service.full_name}/{method.name}",
        "takes": "stream" if method.client_streaming else "one",
        "answers": "stream" if method.server_streaming else "one",
        "request": method.input_type.full_name,
        "response": method.output_type.full_name,
        "fields": _fields(method.input_type, _DEPTH_MAX, budget),
    }


class _Budget:
    """The number of fields that may still be described."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> bool:
        """Take one, if there is one."""
        self.left -= 1
        return self.left >= 0


def _fields(kind: Descriptor, depth: int, budget: _Budget) -> list[dict[str, Any]]:
    return [_field(field, depth, budget) for field in kind.fields if budget.take()]


def _field(field: FieldDescriptor, depth: int, budget: _Budget) -> dict[str, Any]:
    found: dict[str, Any] = {"name": field.json_name, "label": field.name, "type": _type(field)}
    if _is_map(field):
        assert field.message_type is not None, "its entries"
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        one = {"name": "value", "label": "value", "type": _type(value)}
        more = {"key": _input(key, depth, budget), "value": one | _input(value, depth, budget)}
        return {**found, "kind": "map", **more}
    if field.is_repeated:
        found["repeated"] = True
    oneof = field.containing_oneof
    if oneof is not None and len(oneof.fields) > 1:
        found["oneof"] = oneof.name
    return found | _input(field, depth, budget)


def _input(field: FieldDescriptor, depth: int, budget: _Budget) -> dict[str, Any]:
    """Describe the input for one value."""
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None, "it has one"
        return {"kind": "enum", "values": _values(field.enum_type)}
    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
        assert field.message_type is not None, "it has one"
        return _message(field.message_type, depth, budget)
    name = _NAMES[field.type]
    if name == "bool":
        return {"kind": "bool"}
    if name == "bytes":
        return {"kind": "bytes", "hint": "base64, or a file"}
    if name in _INTEGERS:
        return {"kind": "integer"}
    if name in _LONGS:
        return {"kind": "long"}
    return {"kind": "text" if name == "string" else "number"}


def _message(kind: Descriptor, depth: int, budget: _Budget) -> dict[str, Any]:
    name = kind.full_name
    if name in _AS_TEXT:
        return {"kind": "text", "hint": _AS_TEXT[name]}
    if name in _AS_JSON:
        return {"kind": "json", "hint": _AS_JSON[name]}
    if name.startswith(_WRAPPERS) and name.endswith("Value"):
        return _input(kind.fields_by_name["value"], depth, budget)
    if depth <= 1:
        return {"kind": "json", "hint": f"an object, {name}"}
    return {"kind": "message", "fields": _fields(kind, depth - 1, budget)}


def _values(kind: EnumDescriptor) -> list[str]:
    return [value.name for value in kind.values[:_ENUM_VALUES_MAX]]


def _type(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return field.message_type.full_name
    return field.enum_type.full_name if field.enum_type is not None else _NAMES[field.type]


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry
