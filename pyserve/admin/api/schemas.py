"""Descriptors of services, and their messages as JSON Schema by proto3's JSON mapping. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from pyserve.admin.context import Described

Schema = dict[str, Any]
PREFIX = "#/components/schemas/"
_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
# Read as both; written as text, since not every reader of JSON keeps 64 bits.
_LONG: Schema = {"type": ["string", "integer"], "format": "int64"}
_NUMBER: Schema = {
    "anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]
}
_OF_TYPE: dict[int, Schema] = {
    FieldDescriptor.TYPE_STRING: _TEXT,
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_FLOAT: _NUMBER,
    FieldDescriptor.TYPE_DOUBLE: _NUMBER,
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_SINT64: _LONG,
    FieldDescriptor.TYPE_SFIXED64: _LONG,
    FieldDescriptor.TYPE_UINT64: {**_LONG, "format": "uint64"},
    FieldDescriptor.TYPE_FIXED64: {**_LONG, "format": "uint64"},
    FieldDescriptor.TYPE_INT32: {**_INTEGER, "format": "int32"},
    FieldDescriptor.TYPE_SINT32: {**_INTEGER, "format": "int32"},
    FieldDescriptor.TYPE_SFIXED32: {**_INTEGER, "format": "int32"},
    FieldDescriptor.TYPE_UINT32: {**_INTEGER, "minimum": 0},
    FieldDescriptor.TYPE_FIXED32: {**_INTEGER, "minimum": 0},
}
_KNOWN: dict[str, Schema] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "examples": ["1.5s"]},
    "google.protobuf.FieldMask": {"type": "string", "examples": ["a,b.c"]},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.ListValue": {"type": "array", "items": {}},
    "google.protobuf.Any": {
        "type": "object",
        "properties": {"@type": {"type": "string"}},
        "required": ["@type"],
    },
}
_WRAPPERS = "google.protobuf."


class MessageSchemas:
    """Schemas of messages, each of them a component."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, message: Descriptor) -> Schema:
        """Return the schema of a message; it names components where it has fields."""
        name = message.full_name
        if name in _KNOWN:
            return dict(_KNOWN[name])
        if self.is_text(message):  # Of those that are left, a wrapper.
            return {"anyOf": [self._single(message.fields_by_name["value"]), {"type": "null"}]}
        if name not in self.components:
            # Before its fields, since messages may be recursive.
            schema = self.components[name] = {"type": "object"}
            if message.fields:
                properties = {each.json_name: self.of_field(each) for each in message.fields}
                schema["properties"] = properties
            if choices := _choices(message):
                schema["description"] = choices
        return {"$ref": PREFIX + name}

    def is_text(self, message: Descriptor) -> bool:
        """Return whether JSON has one text or number for a message."""
        name = message.full_name
        is_wrapper = name.startswith(_WRAPPERS) and name.endswith("Value")
        return _KNOWN.get(name, {}).get("type") == "string" or (is_wrapper and name not in _KNOWN)

    def of_field(self, field: FieldDescriptor) -> Schema:
        """Return the schema of a field, with all of its values."""
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            return {
                "type": "object",
                "additionalProperties": self._single(kind.fields_by_name["value"]),
            }
        if field.is_repeated:
            return {"type": "array", "items": self._single(field)}
        return self._single(field)

    def _single(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None:
            return self.of(field.message_type)
        if field.enum_type is not None:
            if field.enum_type.full_name == "google.protobuf.NullValue":
                return {"type": "null"}
            return {"type": "string", "enum": [each.name for each in field.enum_type.values]}
        return dict(_OF_TYPE[field.type])


def _choices(message: Descriptor) -> str:
    """Say which fields exclude each other."""
    groups = [
        ", ".join(field.json_name for field in oneof.fields)
        for oneof in message.oneofs
        # That of an optional field has one.
        if len(oneof.fields) > 1
    ]
    return "; ".join(f"At most one of {each}" for each in groups)


# Descriptor pools from deployments' descriptions of their services.

_LOGGER = logging.getLogger(__name__)


def methods_in(described: Described) -> Iterator[MethodDescriptor]:
    """Yield the methods of a deployment that have a ``.proto``."""
    pool = _pool(described.files)
    for name in described.services:
        try:
            service = pool.FindServiceByName(name)
        except KeyError:
            continue  # It is of handles, or of code that has no file.
        yield from service.methods


def _pool(files: Iterable[bytes]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for serialized in files:
        try:
            pool.AddSerializedFile(serialized)
        except TypeError as error:
            # One file that contradicts another must not hide the rest.
            _LOGGER.info("a method cannot be described: %s", error)
    return pool
