"""What handlers of plain HTTP and ASGI applications say of themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import pyserve
from pyserve.replica.http.documents import application_document, call_document
from pyserve.replica.plain.methods import CALL, find_methods
from tests.support.openapi import problems_of


@dataclass
class House:
    rooms: int
    name: str = ""


class Price(BaseModel):
    price: float


def document_of(function: Any) -> dict[str, Any]:
    """Return the document of a deployed function, which a validator has nothing against."""
    document = call_document(find_methods(function, {})[CALL], "Prices")
    (item,) = document["paths"].values()
    assert [] == problems_of({**document, "paths": {"/": item}})
    return document


def resolved(document: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a body of JSON."""
    schema: dict[str, Any] = content["content"]["application/json"]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["schemas"][name] if name else schema
    return found


def operation_of(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = document_of(function)["paths"][""]["post"]
    return found


def test_a_data_type_is_the_body():
    async def price(house: House) -> Price:
        """Say what it costs."""
        raise NotImplementedError

    document = document_of(price)
    operation = document["paths"][""]["post"]
    assert "Say what it costs." == operation["description"]
    schema = resolved(document, operation["requestBody"])
    assert (True, ["rooms"]) == (operation["requestBody"]["required"], schema["required"])
    answer = resolved(document, operation["responses"]["200"])
    assert "number" == answer["properties"]["price"]["type"]
    assert {"post"} == set(document["paths"][""])


def test_several_parameters_are_fields():
    async def price(rooms: int, house: House, request: Request, extra: Price | None = None): ...

    document = document_of(price)
    schema = document["paths"][""]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert ["rooms", "house"] == schema["required"]
    assert {"rooms", "house", "extra"} == set(schema["properties"])
    assert not schema["additionalProperties"]
    assert {"House", "Price"} >= set(document["components"]["schemas"])


def test_a_handler_of_requests_takes_anything_by_get_and_post():
    def handler(request: Request): ...

    document = document_of(handler)
    assert {"get", "post"} == set(document["paths"][""])
    assert {"*/*": {}} == document["paths"][""]["post"]["requestBody"]["content"]
    assert "requestBody" not in document["paths"][""]["get"]


def test_a_handler_without_parameters_takes_nothing():
    async def handler() -> None: ...

    assert "requestBody" not in operation_of(handler)


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (str, "text/plain"),
        (bytes, "application/octet-stream"),
        (dict[str, int], "application/json"),
        (AsyncIterator[str], "text/plain"),
        (AsyncIterator[House], "application/x-ndjson"),
        (JSONResponse, "*/*"),
        (Any, "*/*"),
    ],
)
def test_the_answer_is_of_what_is_returned(returned: Any, kind: str):
    async def handler(): ...  # type: ignore[no-untyped-def]

    handler.__annotations__["return"] = returned
    assert [kind] == list(operation_of(handler)["responses"]["200"]["content"])


def test_what_pydantic_does_not_know_is_anything():
    async def handler(values: np.ndarray, more: np.ndarray) -> float:  # type: ignore[type-arg]
        raise NotImplementedError

    content = operation_of(handler)["requestBody"]["content"]
    assert {"type": "array"} == content["application/json"]["schema"]["properties"]["values"]


def test_a_batched_handler_takes_and_answers_what_one_client_sends_and_gets():
    @pyserve.batch(max_batch_size=2)
    async def handle(houses: list[House]) -> list[Price]:
        raise NotImplementedError

    document = document_of(handle)
    operation = document["paths"][""]["post"]
    found = operation["requestBody"], operation["responses"]["200"]
    assert ["House", "Price"] == [resolved(document, each)["title"] for each in found]


def test_an_annotation_that_is_not_there_hides_no_document():
    async def handler(value: Missing) -> int:  # type: ignore[name-defined]  # noqa: F821
        raise NotImplementedError

    assert "requestBody" not in operation_of(handler)


def test_an_application_has_its_own_document():
    api = FastAPI()

    @api.get("/things")
    def things() -> list[int]:
        raise NotImplementedError

    assert {"/things"} == set(application_document(api, "Shop")["paths"])


def test_routes_of_an_application_without_one_are_named():
    async def item(request: Request) -> JSONResponse:
        """Show it."""
        raise NotImplementedError

    app = Starlette(routes=[Route("/items/{number:int}", item, methods=["GET", "PUT"])])
    document = application_document(app, "Shop")
    assert [] == problems_of(document)
    found = document["paths"]["/items/{number}"]
    assert {"get", "put"} == set(found)
    assert ("Show it.", "number") == (
        found["get"]["description"],
        found["put"]["parameters"][0]["name"],
    )


def test_of_any_other_application_nothing_is_known():
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    assert {} == application_document(app, "Shop")["paths"]
