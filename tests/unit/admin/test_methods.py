"""Forms that are made of descriptors."""

from typing import Any

from google.protobuf import descriptor_pb2, duration_pb2, wrappers_pb2

from pyserve.admin.api.methods import methods_of
from pyserve.admin.context import Described
from services.echo import echo_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto


def described(file: descriptor_pb2.FileDescriptorProto, *services: str) -> Described:
    files = (
        duration_pb2.DESCRIPTOR.serialized_pb,
        wrappers_pb2.DESCRIPTOR.serialized_pb,
        file.SerializeToString(),
    )
    return Described("shop", "Cart", services, files)


def file_of(*fields: descriptor_pb2.FieldDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with one service, whose method takes a message of these fields."""
    file = descriptor_pb2.FileDescriptorProto(
        name="cart.proto",
        package="cart",
        syntax="proto3",
        dependency=["google/protobuf/duration.proto", "google/protobuf/wrappers.proto"],
    )
    message = file.message_type.add(name="Item", field=fields)
    entry = message.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=_FIELD.TYPE_STRING)
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    service = file.service.add(name="Cart")
    service.method.add(name="Put", input_type=".cart.Item", output_type=".cart.Item")
    service.method.add(
        name="PutAll", input_type=".cart.Item", output_type=".cart.Item", client_streaming=True
    )
    return file


def field(
    name: str,
    kind: descriptor_pb2.FieldDescriptorProto.Type.ValueType,
    type_name: str = "",
    **more: Any,
) -> descriptor_pb2.FieldDescriptorProto:
    given: dict[str, Any] = {"label": _FIELD.LABEL_OPTIONAL, **more}
    if type_name:
        given["type_name"] = type_name
    return _FIELD(name=name, number=len(name), type=kind, **given)


def form(*fields: descriptor_pb2.FieldDescriptorProto) -> dict[str, Any]:
    """Return the form of that method, by the names of its fields."""
    put, _ = methods_of([described(file_of(*fields), "cart.Cart")])
    return {each["name"]: each for each in put["fields"]}


def test_each_type_has_its_input():
    found = form(
        field("a", _FIELD.TYPE_STRING),
        field("bb", _FIELD.TYPE_INT32),
        field("ccc", _FIELD.TYPE_UINT64),
        field("dddd", _FIELD.TYPE_DOUBLE),
        field("eeeee", _FIELD.TYPE_BOOL),
        field("ffffff", _FIELD.TYPE_BYTES),
        field("ggggggg", _FIELD.TYPE_ENUM, ".cart.Colour"),
        field("hhhhhhhh", _FIELD.TYPE_MESSAGE, ".google.protobuf.Duration"),
        field("iiiiiiiii", _FIELD.TYPE_MESSAGE, ".google.protobuf.Int64Value"),
    )
    assert ["text", "integer", "long", "number", "bool", "bytes", "enum", "text", "long"] == [
        each["kind"] for each in found.values()
    ]
    assert ["NONE", "RED"] == found["ggggggg"]["values"]


def test_names_are_those_of_json():
    assert ["unitPrice"] == list(form(field("unit_price", _FIELD.TYPE_DOUBLE)))


def test_lists_and_maps_are_told_apart():
    repeated = _FIELD.LABEL_REPEATED
    found = form(
        field("tag", _FIELD.TYPE_STRING, label=repeated),
        field("tags", _FIELD.TYPE_MESSAGE, ".cart.Item.TagsEntry", label=repeated),
    )
    assert (True, "text") == (found["tag"]["repeated"], found["tag"]["kind"])
    assert ("map", False) == (found["tags"]["kind"], "repeated" in found["tags"])
    assert ("text", "text") == (found["tags"]["key"]["kind"], found["tags"]["value"]["kind"])


def test_a_message_within_itself_ends_as_json():
    found = form(field("inner", _FIELD.TYPE_MESSAGE, ".cart.Item"))["inner"]
    depth = 0
    while found["kind"] == "message":
        (found,) = found["fields"]
        depth += 1
    assert ("json", 3) == (found["kind"], depth)


def test_fields_that_exclude_each_other_name_what_they_are_of():
    file = file_of(
        field("a", _FIELD.TYPE_STRING, oneof_index=0),
        field("bb", _FIELD.TYPE_BOOL, oneof_index=0),
        field("ccc", _FIELD.TYPE_BOOL, oneof_index=1, proto3_optional=True),
    )
    for name in ("which", "_ccc"):
        file.message_type[0].oneof_decl.add(name=name)
    put, _ = methods_of([described(file, "cart.Cart")])
    assert ["which", "which", None] == [each.get("oneof") for each in put["fields"]]


def test_a_method_says_what_it_takes_and_answers():
    put, put_all = methods_of([described(file_of(), "cart.Cart")])
    assert ("/cart.Cart/Put", "one", "one") == (put["path"], put["takes"], put["answers"])
    assert ("/cart.Cart/PutAll", "stream") == (put_all["path"], put_all["takes"])


def test_a_service_without_descriptors_and_a_broken_file_hide_nothing():
    good = described(file_of(), "unknown.Service", "cart.Cart")
    broken = Described("shop", "Cart", ("cart.Cart",), (b"\xff\xff", *good.files))
    assert ["Put", "PutAll"] == [each["method"] for each in methods_of([broken])]


def test_the_echo_service_has_a_form_for_each_method():
    file = echo_pb2.DESCRIPTOR
    files = [each.serialized_pb for each in (*file.dependencies, file)]
    name = file.services_by_name["Echo"].full_name
    found = methods_of([Described("default", "Echo", (name,), tuple(files))])
    assert len(file.services_by_name["Echo"].methods) == len(found)
    assert all(each["fields"] is not None for each in found)
