"""Forms for operations of plain HTTP."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import pytest
from fastapi import FastAPI, File, Form, Header, UploadFile
from pydantic import BaseModel

from pyserve.admin.api.methods import operations_of
from pyserve.admin.api.openapi import Part, document_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    colour: Colour = Colour.RED
    prices: list[float] = []
    tags: dict[str, int] = {}
    note: str | None = None
    either: int | str = 0
    inner: Item | None = None


def form_of(api: FastAPI) -> dict[str, Any]:
    """Return the form of an application's only operation."""
    document = document_of("1", "", [], [Part("shop", "Shop", "/shop", api.openapi(), "")])
    (found,) = operations_of(document)
    return found


def body_fields(api: FastAPI) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in form_of(api)["body"]["field"]["fields"]}


def test_parameters_are_fields_that_say_where_they_go():
    api = FastAPI()

    @api.get("/items/{number}", summary="Get it")
    def get(number: int, q: list[str], x_key: Annotated[str, Header()]) -> None: ...

    found = form_of(api)
    assert ("GET", "/shop/items/{number}", "Get it") == (
        found["verb"],
        found["path"],
        found["summary"],
    )
    assert [("path", "number", "integer", True), ("header", "x-key", "text", True)] == [
        (each["in"], each["name"], each["kind"], each["required"]) for each in found["parameters"]
    ]


def test_the_fields_of_a_body_of_json():
    api = FastAPI()

    @api.post("/items")
    def put(item: Item) -> None: ...

    found = body_fields(api)
    assert {
        "name": "text",
        "colour": "enum",
        "prices": "number",
        "tags": "map",
        "note": "text",
        "either": "json",
        "inner": "message",
    } == {name: each["kind"] for name, each in found.items()}
    assert (True, False) == (found["name"]["required"], found["note"]["required"])
    assert ["red", "blue"] == found["colour"]["values"]
    assert found["prices"]["repeated"]
    assert "integer" == found["tags"]["value"]["kind"]


def test_a_body_within_itself_ends_as_json():
    api = FastAPI()

    @api.post("/items")
    def put(item: Item) -> None: ...

    found, depth = body_fields(api)["inner"], 0
    while found["kind"] == "message":
        found = next(each for each in found["fields"] if each["name"] == "inner")
        depth += 1
    assert ("json", 3) == (found["kind"], depth)


def test_files_go_in_forms():
    api = FastAPI()

    @api.post("/files")
    def put(file: Annotated[UploadFile, File()], name: Annotated[str, Form()]) -> None: ...

    assert ("multipart/form-data", "form") == (
        form_of(api)["body"]["type"],
        form_of(api)["body"]["kind"],
    )
    assert {"file": "file", "name": "text"} == {
        name: each["kind"] for name, each in body_fields(api).items()
    }


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({}, "json"),
        ({"$ref": "#/components/schemas/missing"}, "json"),
        ({"$ref": "#/components/schemas/circle"}, "json"),
        ({"const": "a"}, "enum"),
        ({"enum": [1, 2]}, "json"),
        ({"type": "array", "items": {"type": "array", "items": {}}}, "json"),
        ({"type": "object"}, "json"),
        ({"type": ["string", "integer"]}, "long"),
        ({"type": "string", "contentEncoding": "base64"}, "bytes"),
    ],
)
def test_what_has_no_input_of_its_own_is_json(schema: dict[str, Any], kind: str):
    operation = {"parameters": [{"name": "a", "in": "query", "schema": schema}]}
    circle = {"$ref": "#/components/schemas/circle"}
    document = {
        "paths": {"/": {"get": operation}},
        "components": {"schemas": {"circle": circle}},
    }
    (found,) = operations_of(document)
    assert kind == found["parameters"][0]["kind"]
    assert [] == list(operations_of(document, {"/"}))
