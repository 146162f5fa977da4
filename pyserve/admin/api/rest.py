"""The paths that ``google.api.http`` gives to methods, as operations of OpenAPI. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.api import annotations_pb2, http_pb2  # type: ignore[import-untyped]  # no stubs
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from pyserve.admin.api.schemas import MessageSchemas, Schema

_VARIABLE = re.compile(r"\{([\w.]+)(?:=([^{}]*))?\}", re.ASCII)
_VERBS = ("get", "put", "post", "delete", "patch")
# Query parameters for deeper fields would be of no practical use.
_DEPTH_MAX = 3


def rest_operations(
    method: MethodDescriptor, schemas: MessageSchemas, error: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, verb and operation for each path of a method.

    Paths that OpenAPI cannot express are left out: any verb, and segments without a name.

    Args:
        method: From any pool.
        schemas: Takes its messages.
        error: The reference to the schema of errors.
    """
    # Options of other pools do not know the extension.
    options = MethodOptions.FromString(method.GetOptions().SerializeToString())
    rule = options.Extensions[annotations_pb2.http]
    for number, each in enumerate((rule, *rule.additional_bindings), 1):
        verb = each.WhichOneof("pattern")
        if verb in _VERBS:
            template: str = getattr(each, verb)
            path = _VARIABLE.sub(r"{\1}", template)
            if "*" not in path:
                operation = _operation(method, each, template, schemas, error)
                operation["operationId"] = f"{method.full_name}.rest{number}"
                yield path, verb, operation


def _operation(
    method: MethodDescriptor,
    rule: http_pb2.HttpRule,
    template: str,
    schemas: MessageSchemas,
    error: str,
) -> dict[str, Any]:
    request = method.input_type
    variables = dict(_VARIABLE.findall(template))
    parameters = [
        _path_parameter(request, name, segments, schemas) for name, segments in variables.items()
    ]
    found: dict[str, Any] = {
        "tags": [method.containing_service.full_name],
        "summary": method.name,
        "responses": {
            "200": {"description": "The answer.", "content": _answer(method, rule, schemas)},
            "default": {
                "description": "A refusal.",
                "content": {"application/json": {"schema": {"$ref": error}}},
            },
        },
    }
    if rule.body:
        field = request.fields_by_name.get(rule.body)
        schema = schemas.of(request) if field is None else schemas.of_field(field)
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if rule.body != "*":
        taken = {*variables, rule.body}
        parameters += _query(request, "", taken, schemas, _DEPTH_MAX)
    if parameters:
        found["parameters"] = parameters
    return found


def _answer(
    method: MethodDescriptor, rule: http_pb2.HttpRule, schemas: MessageSchemas
) -> dict[str, Any]:
    field = method.output_type.fields_by_name.get(rule.response_body)
    schema = schemas.of(method.output_type) if field is None else schemas.of_field(field)
    return answer_content(schema, streams=method.server_streaming)


def answer_content(schema: Schema, *, streams: bool) -> dict[str, Any]:
    """Return the content of an answer with one message, or with a stream of them."""
    if not streams:
        return {"application/json": {"schema": schema}}
    return {
        "application/json": {"schema": {"type": "array", "items": schema}},
        "application/x-ndjson": {"schema": schema},
    }


def _path_parameter(
    request: Descriptor, name: str, segments: str, schemas: MessageSchemas
) -> dict[str, Any]:
    field = _field(request, name)
    found: dict[str, Any] = {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string"} if field is None else schemas.of_field(field),
    }
    if segments:
        found["description"] = f"Of the form {segments}"
    return found


def _field(message: Descriptor | None, dotted: str) -> FieldDescriptor | None:
    field: FieldDescriptor | None = None
    for name in dotted.split("."):
        field = None if message is None else message.fields_by_name.get(name)
        message = None if field is None else field.message_type
    return field


def _query(
    message: Descriptor, prefix: str, taken: set[str], schemas: MessageSchemas, depth: int
) -> Iterator[dict[str, Any]]:
    for field in message.fields:
        name = prefix + field.name
        if name in taken:
            continue
        kind = field.message_type
        if kind is None or schemas.is_text(kind):
            yield {"name": name, "in": "query", "schema": schemas.of_field(field)}
        elif depth > 1 and not field.is_repeated:
            yield from _query(kind, f"{name}.", taken, schemas, depth - 1)
