"""Messages with a value in every field, as a release writes them.

``python -m tests.unit.wire.filled`` prints those of the pyserve that is imported, for
``older/messages-MAJOR.MINOR.jsonl``: run it with the older release first in ``PYTHONPATH``, and
this tree second.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

FILES = ("control", "ingress", "load", "mesh", "value")
_DEPTH_MAX = 3  # of messages within messages; each of those is there by itself too
_VALUES: dict[int, object] = {
    FieldDescriptor.CPPTYPE_BOOL: True,
    FieldDescriptor.CPPTYPE_DOUBLE: 1.5,
    FieldDescriptor.CPPTYPE_FLOAT: 1.5,
}


def descriptors() -> Iterator[Descriptor]:
    """Yield all messages of the wire, those within others excepted."""
    for name in FILES:
        file = import_module(f"pyserve.wire.v1.{name}_pb2").DESCRIPTOR
        yield from file.message_types_by_name.values()


def filled(descriptor: Descriptor) -> Iterator[Message]:
    """Yield messages that have every field together; of alternatives each has another one."""
    chosen = [tuple(each.fields) for each in descriptor.oneofs]
    for turn in range(max((len(fields) for fields in chosen), default=1)):
        left_out = {
            field.name
            for fields in chosen
            for place, field in enumerate(fields)
            if place != turn % len(fields)
        }
        message = GetMessageClass(descriptor)()
        _fill(message, left_out, _DEPTH_MAX)
        yield message


def _fill(message: Message, left_out: set[str], depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.name in left_out or not depth:
            continue
        if (kind := field.message_type) is not None and kind.GetOptions().map_entry:
            value, inner = kind.fields_by_name["value"], getattr(message, field.name)
            if value.message_type is None:
                inner["key"] = _value(value)
            else:
                _fill(inner["key"], set(), depth - 1)
        elif kind is not None:
            inner = getattr(message, field.name)
            inner = inner.add() if field.is_repeated else inner
            inner.SetInParent()
            _fill(inner, set(), depth - 1)
        elif field.is_repeated:
            getattr(message, field.name).append(_value(field))
        else:
            setattr(message, field.name, _value(field))


# Any: of one of two classes with the same attributes, by how protobuf was built.
def _value(field: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return field.name.encode()
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return field.name
    return _VALUES.get(field.cpp_type, field.number)


def main() -> None:
    """Print a line for each: its name, its bytes, and what they mean."""
    lines = [
        json.dumps(
            {
                "message": descriptor.full_name,
                "bytes": base64.b64encode(message.SerializeToString(deterministic=True)).decode(),
                "means": text_format.MessageToString(message, as_one_line=True),
            }
        )
        for descriptor in descriptors()
        for message in filled(descriptor)
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
