"""Requests of a FastAPI application are counted by the templates of its routes."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, HTTPException

from pyserve.replica.asgi import routes
from pyserve.replica.asgi.routes import RouteMeasures


def _application() -> FastAPI:
    api, inner, mounted = FastAPI(), APIRouter(prefix="/inner"), FastAPI()

    @inner.get("/{number}")
    async def of_router(number: int) -> int:
        return number

    @api.get("/items/{name}", include_in_schema=False)
    async def of_application(name: str) -> str:
        if name == "gone":
            raise HTTPException(404)
        return name

    @mounted.get("/{size}")
    async def of_mounted(size: int) -> int:
        return size

    api.include_router(inner, prefix="/api")
    api.mount("/mounted", mounted)
    return api


async def _ask(api: Any, measures: RouteMeasures, path: str, root_path: str = "") -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": f"{root_path}{path}",
        "raw_path": f"{root_path}{path}".encode(),
        "root_path": root_path,
        "query_string": b"",
        "headers": [],
        "client": None,
        "server": ("shop", 80),
        "scheme": "http",
    }
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    await api(scope, receive, send)
    measures.add(scope, root_path, sent[0]["status"], 0.25)


@pytest.mark.parametrize("root_path", ["", "/shop"])
async def test_each_route_is_counted_by_its_whole_template(root_path: str) -> None:
    api = _application()
    measures = RouteMeasures(api)
    assert measures.is_known
    for path in ("/items/tea", "/items/gone", "/items/pie", "/api/inner/3", "/mounted/4", "/none"):
        await _ask(api, measures, path, root_path)
    assert {
        ("GET /items/{name}", "2xx"): 2,
        ("GET /items/{name}", "4xx"): 1,
        ("GET /api/inner/{number}", "2xx"): 1,
        ("GET /mounted/{size}", "2xx"): 1,
    } == measures.answers
    assert 0.75 == measures.times["GET /items/{name}"].sum


async def test_what_an_application_makes_while_it_runs_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "ROUTES_MAX", 3)
    api = FastAPI()

    async def answer() -> str:
        return ""

    for number in range(5):
        api.get(f"/{number}")(answer)
    measures = RouteMeasures(api)
    for number in range(5):
        await _ask(api, measures, f"/{number}")
    assert ["GET /0", "GET /1", "GET /2", "others"] == list(measures.times)
    assert 2 == measures.answers["others", "2xx"]


def test_other_applications_tell_of_no_routes() -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    assert not RouteMeasures(app).is_known
