"""Calls of plain HTTP have the names of the routes in the documents of their deployments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyserve.admin.api.catalogue import Documents
from pyserve.admin.calls import asking
from pyserve.admin.calls.asking import Routes
from pyserve.admin.calls.store import Call, read_record
from tests.unit.admin.test_calls import Record

_PATHS: dict[Any, Any] = {
    "/": {"get": {}},
    "/items/latest": {"get": {}},
    "/items/{id}": {"get": {}, "delete": {}},
    "/items/{id}/parts/{part}": {"get": {}},
    "/files/{path}": {"get": {}},
    "/a.b+c": {"get": {}},
}


class Front:
    """An ingress whose replicas say the same, as long as they do."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self.document = {"paths": _PATHS} if document is None else document
        self.asked: list[str] = []
        self.replicas = ["Web#1"]
        self.is_gone = self.hangs = False

    def replicas_of(self, _target: str) -> list[str]:
        return self.replicas

    async def document_of(self, _target: str, replica_id: str) -> dict[str, Any]:
        self.asked.append(replica_id)
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.is_gone:
            raise ConnectionError("UNAVAILABLE: it has ended")
        return self.document


def _call(method: str, path: str) -> Call:
    return read_record(Record(method=method, path=path))


async def _named(front: Any, *calls: Call) -> list[str]:
    return [call.method for call in await Routes(Documents(front)).named(calls)]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET /", "/items/7", "GET /items/{id}"),
        ("DELETE /", "/items/7", "DELETE /items/{id}"),
        ("GET /", "/items/latest", "GET /items/latest"),
        ("GET /", "/items/7/parts/x%20y", "GET /items/{id}/parts/{part}"),
        ("GET /", "/files/a/b/c.txt", "GET /files/{path}"),
        ("GET /", "/a.b+c", "GET /a.b+c"),
        ("GET /", "/axb+c", "GET /"),
        ("GET /", "/", "GET /"),
        ("POST /", "/items/7", "POST /"),
        ("GET /shop", "/shop/items/7", "GET /shop/items/{id}"),
        ("GET /shop", "/shop/nothing", "GET /shop"),
        ("GET /shop", "/shop", "GET /shop"),
    ],
)
async def test_a_call_has_the_template_of_its_route(method: str, path: str, expected: str) -> None:
    assert [expected] == await _named(Front(), _call(method, path))


async def test_calls_of_services_stay_as_they_are() -> None:
    front = Front()
    assert ["/shop.Cart/Of"] == await _named(front, _call("/shop.Cart/Of", ""))
    assert [] == front.asked


async def test_a_replica_is_asked_once_while_it_lives() -> None:
    front: Any = Front()
    found = Routes(Documents(front))
    for _ in range(3):
        await found.named([_call("GET /", "/items/1"), _call("GET /", "/items/2")])
    assert ["Web#1"] == front.asked

    front.replicas, front.document = ["Web#2"], {"paths": {"/{anything}": {"get": {}}}}
    (call,) = await found.named([_call("GET /", "/items")])
    assert "GET /{anything}" == call.method
    assert ["Web#1", "Web#2"] == front.asked


@pytest.mark.parametrize("document", [{}, {"paths": 3}, {"paths": {"/items/{id}": 3, 4: {}}}])
async def test_what_is_no_document_names_nothing(document: dict[str, Any]) -> None:
    assert ["GET /"] == await _named(Front(document), _call("GET /", "/items/7"))


async def test_a_replica_that_does_not_say_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_TIMEOUT_S", 0.01)
    front = Front()
    front.hangs = True
    assert ["GET /"] == await _named(front, _call("GET /", "/items/7"))
    front.hangs, front.is_gone = False, True
    assert ["GET /"] == await _named(front, _call("GET /", "/items/7"))
