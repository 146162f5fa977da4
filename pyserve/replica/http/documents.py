"""A replica's plain HTTP interface as an OpenAPI 3.1 document, with paths below its prefix.

Made on request, since most replicas are never asked.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyserve.api.files import File
from pyserve.replica.http.arguments import Signature, signature_of
from pyserve.replica.plain.methods import Kind, PlainMethod

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic.json_schema import JsonSchemaMode

Document = dict[str, Any]

VERSION = "3.1.0"
_BATCHED = frozenset({Kind.BATCHED, Kind.BATCHED_GENERATOR})
_STREAMS = (
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncIterator,
    collections.abc.Generator,
    collections.abc.Iterable,
    collections.abc.Iterator,
)
# Of Starlette's paths, `{name:path}`; OpenAPI has the name only.
_CONVERTER = re.compile(r":\w+(?=\})")
_PARAMETER = re.compile(r"\{(\w+)\}")
_VERBS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_ANYTHING: Document = {"*/*": {}}
_REFERENCE = "#/components/schemas/{model}"


def call_document(method: PlainMethod, name: str) -> Document:
    """Return the document of ``__call__``.

    Args:
        method: As ``find_methods`` has found it.
        name: The deployment's.
    """
    signature = signature_of(method.written, batched=method.kind in _BATCHED)
    schemas = _Schemas()
    body = _body(signature, schemas)
    answer = _answer(method, schemas)
    operation: Document = {
        "summary": name,
        "operationId": name,
        "responses": {
            "200": {"description": "What the handler has returned.", "content": answer},
            "default": {"description": "What went wrong, and where."},
        },
    }
    if said := _said(method.written):
        operation["description"] = said
    if body is not None:
        operation["requestBody"] = body
    path: Document = {"post": operation}
    if signature.takes in ("request", "nothing"):
        without_body = {key: value for key, value in operation.items() if key != "requestBody"}
        path["get"] = {**without_body, "operationId": f"{name}.get"}
    return _document(name, {"": path}, schemas.components())


def application_document(app: Any, name: str) -> Document:
    """Return the document of an ASGI application: its own, or the paths of its routes.

    Args:
        app: FastAPI, Starlette, or any other, of which nothing is known.
        name: The deployment's.
    """
    own = getattr(app, "openapi", None)
    if callable(own):
        document = own()
        if isinstance(document, Mapping):
            return dict(document)
    paths: dict[str, Document] = {}
    for path, verb, route in _routes(app):
        operation: Document = {
            "summary": getattr(route, "name", "") or path,
            "responses": {"default": {"description": "What the application says."}},
        }
        if said := _said(getattr(route, "endpoint", None)):
            operation["description"] = said
        names = _PARAMETER.findall(path)
        if names:
            operation["parameters"] = [
                {"name": each, "in": "path", "required": True, "schema": {"type": "string"}}
                for each in names
            ]
        if verb in ("post", "put", "patch"):
            operation["requestBody"] = {"content": _ANYTHING}
        paths.setdefault(path, {})[verb] = operation
    return _document(name, paths, {})


def _document(name: str, paths: Mapping[str, Document], schemas: Mapping[str, Any]) -> Document:
    found: Document = {"openapi": VERSION, "info": {"title": name, "version": ""}, "paths": paths}
    if schemas:
        found["components"] = {"schemas": schemas}
    return found


def _routes(app: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield path, verb and route of what Starlette's applications have."""
    routes = getattr(app, "routes", None)
    for route in routes if isinstance(routes, list) else ():
        path, methods = getattr(route, "path", None), getattr(route, "methods", None)
        if isinstance(path, str) and methods and getattr(route, "include_in_schema", True):
            for verb in sorted(each.lower() for each in methods):
                # Starlette adds HEAD to every GET.
                if verb in _VERBS and verb != "head":
                    yield _CONVERTER.sub("", path), verb, route


def _said(function: Any) -> str:
    try:
        return inspect.getdoc(function) or "" if inspect.isroutine(function) else ""
    except Exception:  # A property of user code.
        return ""


# --- bodies ---------------------------------------------------------------------------------


def _body(signature: Signature, schemas: _Schemas) -> Document | None:
    match signature.takes:
        case "nothing":
            return None
        case "request":
            return {"content": _ANYTHING}
        case "body":
            parameter = signature.only
            annotation = signature.hints[parameter.name]
            required = parameter.default is inspect.Parameter.empty
            return {"required": required, "content": _content(annotation, schemas)}
        case "fields":
            return _object(signature, schemas)


def _content(annotation: Any, schemas: _Schemas) -> Document:
    if annotation in (bytes, bytearray, memoryview):
        return {"application/octet-stream": {}}
    content: Document = {"application/json": {"schema": schemas.of(annotation)}}
    if annotation is str:
        content["text/plain"] = {"schema": {"type": "string"}}
    return content


def _object(signature: Signature, schemas: _Schemas) -> Document:
    fields = signature.fields
    required = [name for name, each in fields.items() if each.default is inspect.Parameter.empty]
    takes_others = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters)
    schema: Document = {
        "type": "object",
        "properties": {name: schemas.of(signature.hints[name]) for name in fields},
        "additionalProperties": takes_others,
    }
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _answer(method: PlainMethod, schemas: _Schemas) -> Document:
    try:
        returned = typing.get_type_hints(method.written).get("return", Any)
    except Exception:  # Any name in it may be missing, and looking it up may run any code.
        return _ANYTHING
    if method.kind in _BATCHED:
        returned = next(iter(typing.get_args(returned)), Any)
    streams = method.streams
    if typing.get_origin(returned) in _STREAMS:
        streams, returned = True, next(iter(typing.get_args(returned)), Any)
    if returned is str:
        return {"text/plain": {"schema": {"type": "string"}}}
    if returned in (bytes, bytearray, memoryview):
        return {"application/octet-stream": {}}
    if returned is File:
        return _ANYTHING
    if returned is None or returned is type(None):
        return {"text/plain": {}}
    schema = schemas.of(returned, is_answer=True)
    if returned is Any or not schemas.knows(schema):
        return _ANYTHING
    return {"application/x-ndjson" if streams else "application/json": {"schema": schema}}


class _Schemas:
    """Schemas of annotations, with the classes in them as components."""

    def __init__(self) -> None:
        self._wanted: list[tuple[Document, JsonSchemaMode, TypeAdapter[Any]]] = []

    def of(self, annotation: Any, *, is_answer: bool = False) -> Document:
        """Return a schema, which ``components`` fills in; it stays empty where none can be made."""
        # Not at the top: many services have no use for it.
        from pydantic import TypeAdapter

        schema: Document = {}
        mode: JsonSchemaMode = "serialization" if is_answer else "validation"
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(annotation)
            adapter.json_schema(mode=mode)
        except Exception:  # Annotations are user code's, and not all of them are pydantic's.
            if _is_array(annotation):
                schema["type"] = "array"
            return schema
        self._wanted.append((schema, mode, adapter))
        return schema

    def knows(self, schema: Document) -> bool:
        """Return whether a schema will have any content."""
        return bool(schema) or any(each is schema for each, _, _ in self._wanted)

    def components(self) -> dict[str, Any]:
        """Fill all schemas in; return those of the classes in them."""
        if not self._wanted:
            return {}
        from pydantic import TypeAdapter

        # Together, so that classes of one name get names of their own.
        inputs = [(number, mode, each) for number, (_, mode, each) in enumerate(self._wanted)]
        found, common = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
        for number, (schema, mode, _) in enumerate(self._wanted):
            schema.update(found[number, mode])
        components: dict[str, Any] = common.get("$defs", {})
        return components


def _is_array(annotation: Any) -> bool:
    return getattr(typing.get_origin(annotation) or annotation, "__name__", "") == "ndarray"
