"""From ``key=value`` and JSON to protobuf messages, and back to JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

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
