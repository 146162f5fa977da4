"""Calls of services whose stubs are not here: their descriptors, and messages from text.

A server's services are learnt by gRPC reflection: v1, and v1alpha where v1 is unknown. Both
versions have the same messages on the wire; only the service's name differs. Messages are made of
``key=value`` and JSON, and printed as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import click
import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from pyserve.cli.commands import CommandFailed

_VERSIONS = ("grpc.reflection.v1", "grpc.reflection.v1alpha")


class Reflection:
    """One reflection stream to a server.

    Args:
        channel: To the server.
        timeout_s: Limit of all questions together.

    Raises:
        grpc.RpcError: The server cannot be reached, or answers neither version.
    """

    def __init__(self, channel: grpc.Channel, timeout_s: float) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._questions: SimpleQueue[reflection_pb2.ServerReflectionRequest | None] = SimpleQueue()
        self._answers: Iterator[reflection_pb2.ServerReflectionResponse]
        self._services = self._open()

    @property
    def services(self) -> list[str]:
        """Full names of the services, sorted."""
        return self._services

    def method(self, service: str, name: str) -> MethodDescriptor:
        """Return the descriptor of a method.

        Raises:
            CommandFailed: The server has no such service or method.
        """
        if service not in self._services:
            if self._is_served(service):
                raise _without_proto(service)
            raise CommandFailed(
                f"the server has no service {service!r}{_hint(service, self._callable())}"
            )
        pool = self._load(service)
        descriptor = pool.FindServiceByName(service)
        method = descriptor.methods_by_name.get(name)
        if method is None:
            names = [each.name for each in descriptor.methods]
            raise CommandFailed(f"{service} has no method {name!r}{_hint(name, names)}")
        return method

    def close(self) -> None:
        """End the stream."""
        self._questions.put(None)

    def _open(self) -> list[str]:
        question = reflection_pb2.ServerReflectionRequest(list_services="")
        for version in _VERSIONS:
            self._questions = SimpleQueue()
            call = self._channel.stream_stream(
                f"/{version}.ServerReflection/ServerReflectionInfo",
                request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
            )
            self._answers = call(iter(self._questions.get, None), timeout=self._timeout_s)
            try:
                answer = self._ask(question)
            except grpc.RpcError as error:
                self._questions.put(None)
                is_last = version == _VERSIONS[-1]
                if is_last or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                continue
            return sorted(each.name for each in answer.list_services_response.service)
        raise AssertionError("the last version returns or raises")

    def _callable(self) -> list[str]:
        """Return the services that can be called: with a .proto, unless none has one."""
        found = [
            each
            for each in self._services
            if self._ask(
                reflection_pb2.ServerReflectionRequest(file_containing_symbol=each)
            ).HasField("file_descriptor_response")
        ]
        return found or self._services

    def _is_served(self, service: str) -> bool:
        """Tell whether a service is there although reflection does not list it."""
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            health_pb2_grpc.HealthStub(self._channel).Check(request, timeout=self._timeout_s)
        except grpc.RpcError:
            return False
        return True

    def _load(self, service: str) -> descriptor_pool.DescriptorPool:
        pool = descriptor_pool.DescriptorPool()
        files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
        question = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
        self._collect(question, files)
        added: set[str] = set()
        for name in list(files):
            self._add(name, files, added, pool)
        return pool

    # No function inside of the other: it would refer to itself, and keep the stream alive.
    def _add(
        self,
        name: str,
        files: dict[str, descriptor_pb2.FileDescriptorProto],
        added: set[str],
        pool: descriptor_pool.DescriptorPool,
    ) -> None:
        """Add a file to the pool after those that it needs."""
        if name in added:
            return
        added.add(name)
        if name not in files:
            missing = reflection_pb2.ServerReflectionRequest(file_by_filename=name)
            self._collect(missing, files)
        for dependency in files[name].dependency:
            self._add(dependency, files, added, pool)
        pool.Add(files[name])

    def _collect(
        self,
        question: reflection_pb2.ServerReflectionRequest,
        files: dict[str, descriptor_pb2.FileDescriptorProto],
    ) -> None:
        answer = self._ask(question)
        if answer.WhichOneof("message_response") == "error_response":
            raise _without_proto(question.file_containing_symbol or question.file_by_filename)
        for serialized in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
            files[file.name] = file

    def _ask(
        self, question: reflection_pb2.ServerReflectionRequest
    ) -> reflection_pb2.ServerReflectionResponse:
        self._questions.put(question)
        return next(self._answers)


def _without_proto(name: str) -> CommandFailed:
    return CommandFailed(
        f"the server's reflection has no .proto of {name!r}; a deployment without one is called "
        "with a handle, or by plain HTTP at its route prefix"
    )


def _hint(name: str, known: list[str]) -> str:
    import difflib

    # A name without its package is what people write first.
    same = [each for each in known if each.endswith(f".{name}")]
    close = same or difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; it has {', '.join(known)}" if known else "; it has none"


_SCALAR_NAMES: dict[int, str] = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}
_TEXT_TYPES = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


def read_messages(kind: Descriptor, arguments: Sequence[str]) -> Iterator[Message]:
    """Read the request messages that a command line gives.

    ``key=value`` pairs make one message; ``key`` may be a path (``a.b``), and is repeated for
    lists. ``key=@file`` takes the content of a file. ``@file`` and ``-`` alone give whole
    messages as JSON, one after the other (or one list).

    Raises:
        click.UsageError: Something does not fit the message; the text says what would.
    """
    sources = [each for each in arguments if each == "-" or each.startswith("@")]
    pairs = [each for each in arguments if each not in sources]
    if sources and pairs:
        raise click.UsageError("give either key=value pairs or a file of messages, not both")
    if not sources:
        values: dict[str, Any] = {}
        for pair in pairs:
            _put(values, kind, pair)
        yield parse(kind, values)
    for source in sources:
        for value in _json_values(_text(source), source):
            yield parse(kind, value)


def parse(kind: Descriptor, value: object) -> Message:
    """Make a message from JSON values.

    Raises:
        click.UsageError: They do not fit.
    """
    message = message_factory.GetMessageClass(kind)()
    try:
        json_format.ParseDict(value, message)  # type: ignore[arg-type]  # it checks the type
    except (json_format.ParseError, AttributeError, TypeError) as error:
        raise click.UsageError(
            f"the request does not fit {kind.full_name}: {error}; {_fields(kind)}"
        ) from error
    return message


def as_json(message: Message) -> str:
    """Return a message as one line of JSON, with the field names of the ``.proto``."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)


def _put(values: dict[str, Any], kind: Descriptor, pair: str) -> None:
    key, separator, text = pair.partition("=")
    if not separator:
        raise click.UsageError(f"{pair!r} is no field; write key=value ({_fields(kind)})")
    *parents, name = key.split(".")
    for parent in parents:
        field = _field(kind, parent)
        if field.message_type is None:
            raise click.UsageError(f"{parent!r} of {kind.full_name} has no fields of its own")
        values, kind = values.setdefault(parent, {}), field.message_type
    field = _field(kind, name)
    value = _value(field, text)
    if field.is_repeated and not isinstance(value, list | dict):
        values.setdefault(name, []).append(value)
    elif name in values:
        raise click.UsageError(f"{key}= is given twice, but holds one value")
    else:
        values[name] = value


def _field(kind: Descriptor, name: str) -> FieldDescriptor:
    field = kind.fields_by_name.get(name)
    if field is None:
        raise click.UsageError(f"{kind.full_name} has no field {name!r}; {_fields(kind)}")
    return field


def _fields(kind: Descriptor) -> str:
    if not kind.fields:
        return "it has no fields"
    return "its fields: " + ", ".join(
        f"{field.name} ({_type_name(field)})" for field in kind.fields
    )


def _type_name(field: FieldDescriptor) -> str:
    prefix = "repeated " if field.is_repeated else ""
    if field.message_type is not None:
        return prefix + field.message_type.name
    if field.enum_type is not None:
        return prefix + " or ".join(value.name for value in field.enum_type.values[:8])
    return prefix + _SCALAR_NAMES[field.type]


def _value(field: FieldDescriptor, text: str) -> object:
    if field.type in _TEXT_TYPES:
        return _text_value(field, text)
    if text.startswith("@"):
        text = _text(text)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text  # The name of an enum's value, or something that ParseDict refuses.


def _text_value(field: FieldDescriptor, text: str) -> object:
    import base64

    is_bytes = field.type == FieldDescriptor.TYPE_BYTES
    if text.startswith("@"):
        content = _bytes(text)
        return base64.b64encode(content).decode() if is_bytes else content.decode()
    if field.is_repeated and text.startswith("["):
        return json.loads(text)
    # As in JSON, bytes are base64; plain text is what people type.
    return base64.b64encode(text.encode()).decode() if is_bytes else text


def _json_values(text: str, source: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    rest = text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except json.JSONDecodeError as error:
            raise click.UsageError(f"{source} holds no JSON: {error}") from error
        yield from value if isinstance(value, list) else [value]
        rest = rest[end:].lstrip(" \t\r\n,")


def _text(source: str) -> str:
    return sys.stdin.read() if source == "-" else _bytes(source).decode()


def _bytes(source: str) -> bytes:
    path = Path(source.removeprefix("@"))
    try:
        return path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from error
