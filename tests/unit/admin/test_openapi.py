"""The document of all that a mesh serves by JSON and plain HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.security import APIKeyHeader
from google.protobuf import descriptor_pb2, descriptor_pool
from pydantic import BaseModel

from pyserve.admin.api.openapi import Part, document_of
from pyserve.admin.context import Described
from services.echo import echo_pb2
from tests.mesh.doors import things_pb2
from tests.support.openapi import problems_of
from tests.unit.admin.test_methods import described, field, file_of

_FIELD = descriptor_pb2.FieldDescriptorProto
_ECHO = "/services.echo.Echo/Echo"


def files_of(*names: str) -> tuple[bytes, ...]:
    """Return files of the default pool and what they rest upon, serialized."""
    found: dict[str, bytes] = {}

    def visit(name: str) -> None:
        file = descriptor_pool.Default().FindFileByName(name)
        for each in file.dependencies:
            visit(each.name)
        found.setdefault(name, file.serialized_pb)

    for name in names:
        visit(name)
    return tuple(found.values())


def echo(application: str = "default") -> Described:
    return Described(
        application, "Echo", ("services.echo.Echo",), files_of(echo_pb2.DESCRIPTOR.name)
    )


def made(*each: Described, parts: tuple[Part, ...] = ()) -> dict[str, Any]:
    """Return the document of a mesh, which a validator has nothing against."""
    document = document_of("1.2.3", "http://127.0.0.1:8000", each, parts)
    assert [] == problems_of(document)
    return document


def schema_of(content: Mapping[str, Any], kind: str = "application/json") -> dict[str, Any]:
    found: dict[str, Any] = content["content"][kind]["schema"]
    return found


def test_an_empty_mesh_has_a_document():
    document = made()
    assert ("3.1.0", {}) == (document["openapi"], document["paths"])
    assert [{"url": "http://127.0.0.1:8000"}] == document["servers"]


def test_a_method_takes_and_answers_its_messages():
    operation = made(echo())["paths"][_ECHO]["post"]
    assert (
        "#/components/schemas/services.echo.EchoRequest"
        == (schema_of(operation["requestBody"])["$ref"])
    )
    answer = operation["responses"]["200"]
    assert "#/components/schemas/services.echo.EchoReply" == schema_of(answer)["$ref"]


def test_a_method_without_side_effects_has_a_get_too():
    paths = made(echo())["paths"]
    assert {"get", "post"} == set(paths[_ECHO])
    assert {"post"} == set(paths["/services.echo.Echo/EchoSync"])
    assert ["encoding", "message"] == [each["name"] for each in paths[_ECHO]["get"]["parameters"]]


def test_a_stream_of_answers_is_a_list_or_lines():
    paths = made(echo())["paths"]
    answer = paths["/services.echo.Echo/EchoStream"]["post"]["responses"]["200"]
    item = {"$ref": "#/components/schemas/services.echo.EchoReply"}
    assert {"type": "array", "items": item} == schema_of(answer)
    assert item == schema_of(answer, "application/x-ndjson")


def test_methods_that_take_a_stream_are_left_out():
    paths = made(echo())["paths"]
    assert "/services.echo.Echo/Perform" in paths
    assert not {"/services.echo.Echo/Collect", "/services.echo.Echo/Converse"} & set(paths)


def test_fields_have_the_types_that_proto3_gives_them_in_json():
    repeated = _FIELD.LABEL_REPEATED
    file = file_of(
        field("unit_price", _FIELD.TYPE_DOUBLE),
        field("bb", _FIELD.TYPE_UINT64),
        field("c", _FIELD.TYPE_BYTES),
        field("dddd", _FIELD.TYPE_ENUM, ".cart.Colour"),
        field("eeeee", _FIELD.TYPE_MESSAGE, ".google.protobuf.Duration"),
        field("ffffff", _FIELD.TYPE_MESSAGE, ".google.protobuf.Int64Value"),
        field("ggggggg", _FIELD.TYPE_MESSAGE, ".cart.Item.TagsEntry", label=repeated),
        field("hhhhhhhh", _FIELD.TYPE_MESSAGE, ".cart.Item", label=repeated),
    )
    item = made(described(file, "cart.Cart"))["components"]["schemas"]["cart.Item"]
    found = item["properties"]
    long = {"type": ["string", "integer"], "format": "int64"}
    assert {"type": ["string", "integer"], "format": "uint64"} == found["bb"]
    assert {"type": "string", "contentEncoding": "base64"} == found["c"]
    assert {"type": "string", "enum": ["NONE", "RED"]} == found["dddd"]
    assert "string" == found["eeeee"]["type"]
    assert {"anyOf": [long, {"type": "null"}]} == found["ffffff"]
    assert {"type": "object", "additionalProperties": {"type": "string"}} == found["ggggggg"]
    assert {"type": "array", "items": {"$ref": "#/components/schemas/cart.Item"}} == (
        found["hhhhhhhh"]
    )
    assert "unitPrice" in found


def test_fields_that_exclude_each_other_are_named():
    file = file_of(
        field("a", _FIELD.TYPE_STRING, oneof_index=0),
        field("bb", _FIELD.TYPE_STRING, oneof_index=0),
    )
    file.message_type[0].oneof_decl.add(name="which")
    schemas = made(described(file, "cart.Cart"))["components"]["schemas"]
    assert "At most one of a, bb" == schemas["cart.Item"]["description"]


def test_a_method_of_two_applications_asks_for_the_header():
    operation = made(echo("one"), echo("two"))["paths"][_ECHO]["post"]
    (header,) = operation["parameters"]
    assert ("application", "header", True) == (header["name"], header["in"], header["required"])
    assert ["one", "two"] == header["schema"]["enum"]
    assert "parameters" not in made(echo("one"))["paths"][_ECHO]["post"]


def test_messages_of_one_name_and_two_forms_are_both_there():
    one = described(file_of(field("a", _FIELD.TYPE_STRING)), "cart.Cart")
    other_file = file_of(field("bb", _FIELD.TYPE_STRING))
    other_file.service[0].name = "Other"
    other = Described(
        "second", "Cart", ("cart.Other",), (*one.files[:2], other_file.SerializeToString())
    )
    document = made(one, other)
    schemas = document["components"]["schemas"]
    assert {"a"} == set(schemas["cart.Item"]["properties"])
    assert {"bb"} == set(schemas["second.Cart.cart.Item"]["properties"])
    body = document["paths"]["/cart.Other/Put"]["post"]["requestBody"]
    assert "#/components/schemas/second.Cart.cart.Item" == schema_of(body)["$ref"]


def test_rest_paths_have_their_verbs_parameters_and_bodies():
    name = "things.v1.Things"
    document = made(Described("default", "Things", (name,), files_of(things_pb2.DESCRIPTOR.name)))
    rest = {
        (path, verb): operation
        for path, item in document["paths"].items()
        for verb, operation in item.items()
        if operation.get("operationId", "").partition(".rest")[1]
    }
    assert ("/v1/things", "get") in rest
    for (path, _), operation in rest.items():
        in_path = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
        assert in_path == {name for name in in_path if f"{{{name}}}" in path}
        assert path.count("{") == len(in_path)


class Order(BaseModel):
    item: str
    inner: Order | None = None


def shop() -> FastAPI:
    api = FastAPI()
    key = APIKeyHeader(name="x-key")

    @api.post("/orders/{number}")
    def order(number: int, order: Order, key: str = Depends(key)) -> int:
        return number

    @api.get("/")
    def root() -> str:
        return ""

    return api


def part(document: Mapping[str, Any] | None, application: str = "shop", **more: Any) -> Part:
    return Part(application, "Shop", f"/{application}", document, **more)


def test_the_document_of_an_application_is_below_its_prefix():
    document = made(parts=(part(shop().openapi()), part(shop().openapi(), "mall")))
    assert {"/shop/orders/{number}", "/shop/", "/mall/orders/{number}", "/mall/"} == (
        set(document["paths"])
    )
    operation = document["paths"]["/shop/orders/{number}"]["post"]
    assert "#/components/schemas/shop.Order" == schema_of(operation["requestBody"])["$ref"]
    schemas = document["components"]["schemas"]
    assert {"shop.Order", "mall.Order"} <= set(schemas)
    inner = schemas["mall.Order"]["properties"]["inner"]["anyOf"][0]
    assert "#/components/schemas/mall.Order" == inner["$ref"]


def test_its_security_schemes_and_ids_are_its_own():
    document = made(parts=(part(shop().openapi()), part(shop().openapi(), "mall")))
    operations = [
        document["paths"][f"/{name}/orders/{{number}}"]["post"] for name in ("shop", "mall")
    ]
    assert [[{"shop.APIKeyHeader": []}], [{"mall.APIKeyHeader": []}]] == [
        each["security"] for each in operations
    ]
    assert {"shop.APIKeyHeader", "mall.APIKeyHeader"} == set(
        document["components"]["securitySchemes"]
    )
    assert 2 == len({each["operationId"] for each in operations})


def test_what_is_not_known_is_said():
    old = {"openapi": "3.0.2", "info": {"title": "", "version": ""}, "paths": {}}
    empty = {**old, "openapi": "3.1.0"}
    document = made(
        parts=(part(None, "one", reason="it hangs"), part(old, "two"), part(empty, "three"))
    )
    assert ["it hangs", "its document is of OpenAPI 3.0.2, not 3.1.x"] == [
        each["reason"] for each in document["x-pyserve-undescribed"][:2]
    ]
    assert ["/one", "/two", "/three"] == [
        each["prefix"] for each in document["x-pyserve-undescribed"]
    ]
    assert {} == document["paths"]
