"""Which routes of an application the ingress may repeat."""

from __future__ import annotations

import logging

import pytest
from fastapi import APIRouter, FastAPI

import pyserve
from pyserve.replica.idempotence import idempotent_routes, repeatable_http


def _marked() -> None: ...


def _unmarked() -> None: ...


pyserve.method(idempotent=True)(_marked)


def app_of(*paths: str, unmarked: tuple[str, ...] = ()) -> FastAPI:
    app = FastAPI()
    for path in unmarked:
        app.post(path)(_unmarked)
    for path in paths:
        app.post(path)(_marked)
    return app


@pytest.mark.parametrize(
    ("path", "announced"),
    [
        ("/v1/chat", "POST /v1/chat"),
        ("/", "POST /"),
        ("/items/{item_id}/run", "POST /items/{}/run"),
        ("/items/{item_id:int}", "POST /items/{}"),
        ("/files/{path:path}", "POST /files/{*}"),
    ],
)
def test_marked_routes_are_announced(path: str, announced: str) -> None:
    assert [announced] == idempotent_routes(app_of(path, unmarked=("/other", "/v1/chat/more/x")))


def test_others_are_not() -> None:
    app = app_of(unmarked=("/v1/chat",))
    app.get("/read")(_marked)
    assert [] == idempotent_routes(app)


def test_those_of_included_routers_have_their_whole_path() -> None:
    app, outer, inner = FastAPI(), APIRouter(prefix="/v1"), APIRouter()
    inner.api_route("/run/{name}", methods=["POST", "PATCH", "GET"])(_marked)
    outer.include_router(inner, prefix="/deep")
    app.include_router(outer, prefix="/api")

    announced = ["PATCH /api/v1/deep/run/{}", "POST /api/v1/deep/run/{}"]
    assert announced == idempotent_routes(app)


@pytest.mark.parametrize(
    ("marked", "unmarked"),
    [
        ("/items/{item_id}", "/items/special"),
        ("/items/special", "/items/{item_id}"),
        ("/{rest:path}", "/charge"),
        ("/v1/run", "/{rest:path}"),
        ("/run-{name}", "/other"),
        ("/{rest:path}/end", "/other"),
    ],
)
def test_a_path_that_may_be_another_routes_is_left_out_with_a_warning(
    marked: str, unmarked: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert [] == idempotent_routes(app_of(marked, unmarked=(unmarked,)))
    assert f"POST {marked} is marked as idempotent" in caplog.text


def test_other_applications_are_not_looked_into() -> None:
    assert [] == idempotent_routes(lambda: None)


class _Plain:
    def __call__(self) -> None: ...


class _Marked:
    @pyserve.method(idempotent=True)
    def __call__(self) -> None: ...


class _Steps:
    def admit(self, request: int) -> int:
        return request

    def step(self, states: list[int]) -> list[pyserve.Done]:
        return [pyserve.Done(state) for state in states]


class _MarkedSteps(_Steps):
    @pyserve.method(idempotent=True)
    def admit(self, request: int) -> int:
        return request


@pytest.mark.parametrize(
    ("target", "announced"),
    [
        (_Plain, []),
        (_Marked, ["*"]),
        (_marked, ["*"]),
        (_unmarked, []),
        (pyserve.continuous(_Steps), ["* unstarted"]),
        (pyserve.continuous(_MarkedSteps), ["*"]),
    ],
)
def test_plain_http_may_be_repeated_if_it_is_marked_or_waits_for_a_step(
    target: object, announced: list[str]
) -> None:
    assert announced == repeatable_http(target)
