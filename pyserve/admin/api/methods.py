"""Forms for everything callable: methods of services, and operations of plain HTTP. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    MethodDescriptor,
)

from pyserve.admin.api.openapi import VERBS
from pyserve.admin.api.schemas import methods_in
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
    found: dict[str, Any] = {
        "name": field.json_name,
        "label": field.name,
        "type": _type_of_field(field),
    }
    if _is_map(field):
        assert field.message_type is not None, "its entries"
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        one = {"name": "value", "label": "value", "type": _type_of_field(value)}
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


def _type_of_field(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return field.message_type.full_name
    return field.enum_type.full_name if field.enum_type is not None else _NAMES[field.type]


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


# Forms for plain HTTP operations, made from an OpenAPI document.

Field = dict[str, Any]
_VALUES_MAX = 200
_HINT_CHARACTERS_MAX = 300
_SIMPLE = {"integer": "integer", "number": "number", "boolean": "bool", "string": "text"}
# The forms in which a body can be filled in, the most convenient first.
_BODIES = (
    ("application/json", "json"),
    ("multipart/form-data", "form"),
    ("application/x-www-form-urlencoded", "urlencoded"),
    ("text/plain", "raw"),
    ("application/octet-stream", "raw"),
    ("*/*", "raw"),
)


def operations_of(
    document: Mapping[str, Any], without: Container[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a form for each operation.

    Args:
        document: Of OpenAPI 3.1.
        without: Paths that have other forms.
    """
    for path, item in document["paths"].items():
        if path in without:
            continue
        for verb in sorted(VERBS & item.keys(), key=list(item).index):
            yield _Forms(document).operation(path, verb, item)


class _Forms:
    """Makes the form of one operation."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._left = _FIELDS_MAX

    def operation(self, path: str, verb: str, item: Mapping[str, Any]) -> dict[str, Any]:
        operation = item[verb]
        parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
        return {
            "kind": "http",
            "verb": verb.upper(),
            "path": path,
            "group": ", ".join(operation.get("tags", ())),
            "summary": str(operation.get("summary", "")),
            "about": str(operation.get("description", "")),
            "parameters": [self._parameter(self._resolved(each)) for each in parameters],
            "body": self._body(self._resolved(operation.get("requestBody") or {})),
        }

    def _parameter(self, given: Mapping[str, Any]) -> Field:
        schema = given.get("schema")
        if schema is None:
            content: Mapping[str, Any] = given.get("content") or {}
            schema = next((each.get("schema", {}) for each in content.values()), {})
        found = self.field(str(given["name"]), schema, _DEPTH_MAX)
        if "content" in given:
            found |= {"kind": "json", "repeated": False}
        if said := given.get("description"):
            found["hint"] = str(said)[:_HINT_CHARACTERS_MAX]
        return {**found, "in": given["in"], "required": bool(given.get("required"))}

    def _body(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        content = given.get("content") or {}
        for name, kind in _BODIES:
            if name in content:
                schema = content[name].get("schema")
                is_open = kind == "raw" or not schema
                found: dict[str, Any] = {"type": name, "kind": "raw" if is_open else kind}
                if not is_open:
                    found["field"] = self.field("", schema, _DEPTH_MAX + 1)
                return found
        others = list(content)
        return {"type": others[0], "kind": "raw"} if others else None

    def field(self, name: str, schema: Any, depth: int) -> Field:
        """Return the description of the input for a value."""
        self._left -= 1
        schema = self._resolved(schema if isinstance(schema, Mapping) else {})
        found: Field = {"name": name, "label": name, "type": _type_of_schema(schema)}
        if hint := _hint(schema):
            found["hint"] = hint
        return found | self._input(schema, depth)

    def _input(self, schema: Mapping[str, Any], depth: int) -> Field:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is not None:
            are_texts = all(isinstance(each, str) for each in values)
            return {"kind": "enum", "values": values[:_VALUES_MAX]} if are_texts else _JSON
        kind = schema.get("type")
        if kind == ["string", "integer"]:
            return {"kind": "long"}
        if kind == "string" and schema.get("format") == "binary":
            return {"kind": "file"}
        if kind == "string" and "contentMediaType" in schema:
            return {"kind": "file"}
        if kind == "string" and schema.get("contentEncoding") == "base64":
            return {"kind": "bytes"}
        if kind == "array":
            item = self.field("", schema.get("items", {}), depth)
            is_simple = not item.get("repeated") and self._left > 0
            of_item = {key: item[key] for key in item if key not in ("name", "label", "hint")}
            return {**of_item, "repeated": True} if is_simple else _JSON
        if kind == "object" or "properties" in schema:
            return self._object(schema, depth)
        return {"kind": _SIMPLE[kind]} if isinstance(kind, str) and kind in _SIMPLE else _JSON

    def _object(self, schema: Mapping[str, Any], depth: int) -> Field:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if depth <= 1 or self._left <= 0:
            return _JSON
        if properties:
            required = schema.get("required", ())
            fields = [
                {**self.field(name, each, depth - 1), "required": name in required}
                for name, each in properties.items()
            ]
            return {"kind": "message", "fields": fields}
        if isinstance(others, Mapping) and others:
            value = self.field("value", others, depth - 1)
            if not value.get("repeated"):
                return {"kind": "map", "key": {"kind": "text"}, "value": value}
        return _JSON

    def _resolved(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Resolve references, and drop the alternative that a value is null."""
        for _ in range(_FIELDS_MAX):  # References may go in a circle.
            reference = given.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/components/"):
                section, _, name = reference.removeprefix("#/components/").partition("/")
                target = self._document["components"].get(section, {}).get(name, {})
                given = {**target, **{key: given[key] for key in given if key != "$ref"}}
                continue
            options = [each for each in given.get("anyOf", ()) if each.get("type") != "null"]
            if len(options) == 1:
                given = {**options[0], **{key: given[key] for key in given if key != "anyOf"}}
                continue
            if len(parts := given.get("allOf", ())) == 1:
                given = {**parts[0], **{key: given[key] for key in given if key != "allOf"}}
                continue
            break
        return given


_JSON: Field = {"kind": "json", "repeated": False}


def _type_of_schema(schema: Mapping[str, Any]) -> str:
    title = schema.get("title") if "properties" in schema else None
    kind = title or schema.get("format") or schema.get("type") or "any"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _hint(schema: Mapping[str, Any]) -> str:
    said = [str(schema["description"])] if "description" in schema else []
    if schema.get("default") is not None:
        said.append(f"default: {schema['default']}")
    return "; ".join(said)[:_HINT_CHARACTERS_MAX]
