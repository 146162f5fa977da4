"""Everything that a mesh serves by JSON and plain HTTP, as one OpenAPI 3.1 document. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.api import annotations_pb2, http_pb2  # type: ignore[import-untyped]  # no stubs
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from pyserve.admin.api.schemas import PREFIX, MessageSchemas, Schema, methods_in
from pyserve.admin.context import Described

VERSION = "3.1.0"
VERBS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})
_KNOWN = "3.1."
_ERROR = "pyserve.Error"
_REFUSAL = "pyserve.Refusal"
_ERRORS: dict[str, Schema] = {
    _ERROR: {
        "type": "object",
        "description": "As Connect has it.",
        "properties": {
            "code": {"type": "string", "examples": ["invalid_argument"]},
            "message": {"type": "string"},
            "details": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["code"],
    },
    _REFUSAL: {
        "type": "object",
        "description": "As Google's JSON interfaces have it.",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "integer"},
                    "status": {"type": "string", "examples": ["INVALID_ARGUMENT"]},
                    "message": {"type": "string"},
                    "details": {"type": "array", "items": {"type": "object"}},
                },
            }
        },
        "required": ["error"],
    },
}
_DESCRIPTION = (
    "What this mesh answers at its ingress. Methods that take a stream have no place here: they "
    "need gRPC, or Connect's envelopes."
)


@dataclass(frozen=True, slots=True)
class Part:
    """One deployment's plain HTTP interface.

    Attributes:
        application: Its application.
        deployment: Its name.
        prefix: The route prefix.
        document: Of OpenAPI, whose paths are below the prefix; ``None``: it is not known.
        reason: Why it is not known.
    """

    application: str
    deployment: str
    prefix: str
    document: Mapping[str, Any] | None
    reason: str = ""


def document_of(
    version: str, url: str, described: Iterable[Described], parts: Iterable[Part]
) -> dict[str, Any]:
    """Return the document.

    Args:
        version: The mesh's.
        url: Of its ingress; "": none.
        described: The deployments with their services.
        parts: Their plain HTTP interfaces.
    """
    whole = _Whole()
    for each in described:
        whole.add_services(each)
    whole.choose_applications()
    unknown = [problem for part in parts if (problem := whole.add_part(part))]
    document: dict[str, Any] = {
        "openapi": VERSION,
        "info": {"title": "pyserve", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": url or "/"}],
        "paths": whole.paths,
        "components": whole.components,
    }
    if unknown:
        document["x-pyserve-undescribed"] = unknown
    return document


class _Whole:
    """The document while it grows."""

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Any]] = {}
        self.components: dict[str, dict[str, Any]] = {"schemas": dict(_ERRORS)}
        self._ids: set[str] = set()
        # Those that have a method, by its path and verb.
        self._applications: dict[tuple[str, str], list[str]] = {}

    # --- services -----------------------------------------------------------------------

    def add_services(self, described: Described) -> None:
        """Add the methods that can be called with one JSON message."""
        schemas = MessageSchemas()
        found: list[tuple[str, str, dict[str, Any]]] = []
        for method in methods_in(described):
            if not method.client_streaming:
                found += _operations(method, schemas)
                found += rest_operations(method, schemas, PREFIX + _REFUSAL)
        # Messages of one name are the same in most applications.
        names = self._add_components(
            {"schemas": schemas.components}, described.target.replace("/", "."), is_shared=True
        )
        for path, verb, operation in found:
            operations = self.paths.setdefault(path, {})
            if verb not in operations:
                operations[verb] = self._with_own_id(_renamed(operation, names))
            self._applications.setdefault((path, verb), []).append(described.application)

    def choose_applications(self) -> None:
        """Describe the header that selects the application, where it is needed."""
        for (path, verb), applications in self._applications.items():
            schema = {"type": "string", "enum": list(dict.fromkeys(applications))}
            header = {"name": "application", "in": "header", "schema": schema}
            if len(schema["enum"]) > 1:
                self.paths[path][verb].setdefault("parameters", []).append(
                    {**header, "required": True}
                )

    def _with_own_id(self, operation: dict[str, Any]) -> dict[str, Any]:
        wanted = operation.get("operationId")
        if not isinstance(wanted, str):
            return operation
        name, number = wanted, 1
        while name in self._ids:
            number += 1
            name = f"{wanted}.{number}"
        self._ids.add(name)
        return {**operation, "operationId": name}

    # --- plain HTTP ---------------------------------------------------------------------

    def add_part(self, part: Part) -> dict[str, str] | None:
        """Add a deployment's plain HTTP interface; return why it is not known."""
        where = {"application": part.application, "prefix": part.prefix}
        if part.document is None:
            return {**where, "reason": part.reason}
        version = str(part.document.get("openapi", ""))
        if not version.startswith(_KNOWN):
            return {**where, "reason": f"its document is of OpenAPI {version}, not {_KNOWN}x"}
        document = _Document(part.document)
        if not document.paths:
            return {**where, "reason": "its application says nothing of its paths"}
        names = self._add_components(document.components, part.application, is_shared=False)
        for path, item in document.paths.items():
            full = (part.prefix.rstrip("/") + path) or "/"
            if full not in self.paths:
                self.paths[full] = self._item(part.application, document, item, names)
        return None

    def _item(
        self,
        application: str,
        document: _Document,
        item: Mapping[str, Any],
        names: Mapping[str, str],
    ) -> dict[str, Any]:
        found: dict[str, Any] = _renamed(item, names)
        for verb in VERBS & found.keys():
            operation = {**document.defaults, **found[verb]}
            if isinstance(wanted := operation.get("operationId"), str):
                operation["operationId"] = f"{application}.{wanted}"
            operation["tags"] = [application]
            if "security" in operation:
                operation["security"] = [
                    {_own_name(scheme, names): scopes for scheme, scopes in each.items()}
                    for each in operation["security"]
                ]
            found[verb] = self._with_own_id(operation)
        return found

    def _add_components(
        self, given: Mapping[str, Any], owner: str, *, is_shared: bool
    ) -> dict[str, str]:
        """Add components; return the references that have to be renamed.

        Args:
            given: By section and name.
            owner: Prefix of their names.
            is_shared: The prefix is added only if the name is taken.
        """
        names: dict[str, str] = {}
        for section, found in given.items():
            known = self.components.setdefault(section, {})
            for name, content in found.items():
                is_free = is_shared and (name not in known or known[name] == content)
                own = name if is_free else f"{_safe(owner)}.{name}"
                if own != name:
                    names[f"#/components/{section}/{name}"] = f"#/components/{section}/{own}"
        for section, found in given.items():
            for name, content in found.items():
                pointer = f"#/components/{section}/{name}"
                own = names.get(pointer, pointer).rpartition("/")[2]
                self.components[section].setdefault(own, _renamed(content, names))
        return names


class _Document:
    """The sections of another document that are taken over."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.paths: Mapping[str, Any] = given.get("paths") or {}
        self.components: Mapping[str, Any] = given.get("components") or {}
        self.defaults = {"security": given["security"]} if "security" in given else {}


def _operations(
    method: MethodDescriptor, schemas: MessageSchemas
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return path, verb and operation of the ways in which JSON calls a method."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    request: Schema = {"schema": schemas.of(method.input_type)}
    answer = schemas.of(method.output_type)
    error = {"schema": {"$ref": PREFIX + (_REFUSAL if method.server_streaming else _ERROR)}}
    operation: dict[str, Any] = {
        "tags": [method.containing_service.full_name],
        "summary": method.name,
        "operationId": method.full_name,
        "responses": {
            "200": {
                "description": "The answer.",
                "content": answer_content(answer, streams=method.server_streaming),
            },
            "default": {"description": "A refusal.", "content": {"application/json": error}},
        },
    }
    options = method.GetOptions()
    if options.deprecated:
        operation["deprecated"] = True
    body = {"required": True, "content": {"application/json": request}}
    found = [(path, "post", {**operation, "requestBody": body})]
    has_no_effects = options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    if has_no_effects and not method.server_streaming:
        query = [
            {
                "name": "encoding",
                "in": "query",
                "required": True,
                "schema": {"type": "string", "enum": ["json"]},
            },
            {
                "name": "message",
                "in": "query",
                "required": True,
                "content": {"application/json": request},
            },
        ]
        by_get = {**operation, "operationId": f"{method.full_name}.get", "parameters": query}
        found.append((path, "get", by_get))
    return found


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a part of a document with its references renamed."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _renamed(each, names) for key, each in value.items()}
    reference = found.get("$ref")
    if isinstance(reference, str):
        found["$ref"] = names.get(reference, reference)
    mapping = found.get("mapping")
    if isinstance(mapping, dict) and "propertyName" in found:  # a discriminator
        found["mapping"] = {key: names.get(str(each), each) for key, each in mapping.items()}
    return found


def _own_name(scheme: str, names: Mapping[str, str]) -> str:
    pointer = f"#/components/securitySchemes/{scheme}"
    return names.get(pointer, pointer).rpartition("/")[2]


def _safe(name: str) -> str:
    """Return a name reduced to the characters that component names may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


# The paths that `google.api.http` gives to methods, as operations of OpenAPI.

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
