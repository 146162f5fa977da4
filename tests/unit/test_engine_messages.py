"""The messages that the ingress has in Rust are those of the engine's ``.proto``."""

import re
from pathlib import Path

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pyserve.llm.v1 import engine_pb2

MESSAGES = Path(__file__).parents[2] / "router_rs/llm/src/messages"

# One field of a message, and the attribute that gives its type and number.
_FIELD = re.compile(r"#\[prost\((?P<kind>[^\]]*)\)\]\s+pub (?P<name>\w+):", re.DOTALL)
_VARIANT = re.compile(r"#\[prost\((?P<kind>[^\]]*)\)\]\s+\w+\((?P<type>\w+)\)")
_BLOCK = re.compile(
    r"#\[derive\([^)]*\b(?P<derive>Message|Oneof|Enumeration)\)\]\s+(?:#\[repr\(i32\)\]\s+)?"
    r"pub (?:struct|enum) (?P<name>\w+) \{(?P<body>.*?)\n?\}\n",
    re.DOTALL,
)
_SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_MESSAGE: "message",
    FieldDescriptor.TYPE_ENUM: "enumeration",
}


def blocks(derive: str) -> dict[str, str]:
    """Return the bodies of all types in Rust that derive this, by their names."""
    text = "\n".join(path.read_text() for path in sorted(MESSAGES.glob("*.rs")))
    found = _BLOCK.finditer(text)
    return {block["name"]: block["body"] for block in found if block["derive"] == derive}


def parts(kind: str) -> list[str]:
    """Split an attribute's arguments, in which quoted ones may have commas."""
    return re.findall(r"""[\w]+(?:\s*=\s*"[^"]*")?""", kind)


def described(descriptor: Descriptor) -> set[tuple[str, int, str]]:
    """Return name, number and type of each field, as the ``.proto`` has them."""
    return {(field.name, field.number, type_of(field)) for field in descriptor.fields}


def type_of(field: FieldDescriptor) -> str:
    """Return a field's type in the words of prost."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields
        return f"map {_SCALARS[key.type]}, {_SCALARS[value.type]}"
    words = [_SCALARS[field.type]]
    if field.is_repeated:
        words.append("repeated")
    group = field.containing_oneof
    # An `optional` scalar is in a oneof that has no other field.
    is_optional = group is not None and len(group.fields) == 1
    if is_optional or (message is not None and not field.is_repeated and group is None):
        words.append("optional")
    return " ".join(words)


def written(body: str, groups: dict[str, str]) -> set[tuple[str, int, str]]:
    """Return name, number and type of each field, as Rust has them."""
    found = set()
    for field in _FIELD.finditer(body):
        words = parts(field["kind"])
        group = next((re.sub(r'.*"(\w+)"', r"\1", it) for it in words if "oneof" in it), None)
        if group is None:
            found.add((field["name"], *number_and_type(words)))
        else:
            variants = _VARIANT.finditer(groups[group])
            found |= {("", *number_and_type(parts(it["kind"]))) for it in variants}
    return found


def number_and_type(words: list[str]) -> tuple[int, str]:
    """Return what the attribute of a field says."""
    *kinds, tag = words
    number = int(re.sub(r"\D", "", tag))
    kind = re.sub(r'\s*=\s*"[^"]*"', "", kinds[0])
    if kind == "btree_map":
        return number, "map " + re.sub(r'.*"(.*)"', r"\1", kinds[0])
    return number, " ".join([kind, *kinds[1:]])


def in_groups(descriptor: Descriptor) -> set[str]:
    """Return the names of fields of which one at most is set."""
    groups = (group for group in descriptor.oneofs if len(group.fields) > 1)
    return {field.name for group in groups for field in group.fields}


def test_every_message_is_there_with_its_fields() -> None:
    """Name, number and type of each field are equal; Rust names those of a oneof otherwise."""
    messages, groups = blocks("Message"), blocks("Oneof")
    assert set(engine_pb2.DESCRIPTOR.message_types_by_name) == set(messages)
    for name, descriptor in engine_pb2.DESCRIPTOR.message_types_by_name.items():
        unnamed = in_groups(descriptor)
        expected = {
            ("" if field in unnamed else field, number, kind)
            for field, number, kind in described(descriptor)
        }
        assert expected == written(messages[name], groups), name


def test_every_enumeration_is_there_with_its_values() -> None:
    """The numbers are equal, and the names but for how the languages write them."""
    file = engine_pb2.DESCRIPTOR
    nested = (it for message in file.message_types_by_name.values() for it in message.enum_types)
    enums = [*file.enum_types_by_name.values(), *nested]
    bodies = blocks("Enumeration")
    assert {enum.name for enum in enums} == set(bodies)
    for enum in enums:
        values = re.findall(r"(\w+) = (\d+)", bodies[enum.name])
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
        expected = {
            (value.name.removeprefix(prefix).replace("_", "").lower(), value.number)
            for value in enum.values
        }
        assert expected == {(name.lower(), int(number)) for name, number in values}, enum.name
