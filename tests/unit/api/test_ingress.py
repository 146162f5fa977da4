"""``@pyserve.ingress``: whose routes a class serves, and how its application travels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import pyserve
from pyserve.api.code import is_reachable, receive, ship
from pyserve.api.context import ReplicaContext, as_local_replica
from pyserve.api.ingress import ingress_of
from pyserve.errors import UsageError
from pyserve.replica.plain.methods import find_methods
from pyserve.types import ApplicationName, DeploymentName, ReplicaId

_ROOT = Path(__file__).resolve().parents[3]


async def _build(target: type) -> Any:
    ingress = ingress_of(target)
    assert ingress is not None
    return await ingress.build(target)


def _replica(instance: object) -> ReplicaContext:
    return ReplicaContext(
        app_name=ApplicationName("app"),
        deployment=DeploymentName("Dep"),
        replica_id=ReplicaId("r"),
        servable_object=instance,
    )


async def _ask(app: Any, instance: object, method: str, path: str, **more: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    with as_local_replica(_replica(instance)):
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **more)


# Each process has one replica, and building an application removes what other classes serve:
# the tests of one class run in a process of its own.
_IN_A_PROCESS = """
import asyncio, json, sys
import httpx
from tests.unit.api import web_application
from tests.unit.api.test_ingress import _ask, _build
async def main():
    target = getattr(web_application, sys.argv[1])
    app = await _build(target)
    instance = target()
    found = []
    for method, path, body in json.loads(sys.argv[2]):
        answer = await _ask(app, instance, method, path, json=body)
        found.append([answer.status_code, answer.text])
    print(json.dumps([found, app.openapi()["paths"]]))
asyncio.run(main())
"""


def _in_a_process(name: str, requests: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_PROCESS, name, json.dumps(requests)],
        cwd=_ROOT,
        check=True,
        capture_output=True,
        timeout=50,
    )
    answers, paths = json.loads(done.stdout)
    return answers, paths


@pytest.mark.parity("S-10")
@pytest.mark.slow
def test_methods_are_routes_with_the_replicas_instance() -> None:
    cases = {
        ("GET", "/greet?who=Ann&number=4", None): (
            200,
            '{"from":"base","to":"Ann","number":8}',
        ),
        ("POST", "/items/3", '{"name": "x", "price": 2}'): (
            201,
            '{"name":"base 3 x","price":2.0}',
        ),
        ("GET", "/stream", None): (
            200,
            '{"name":"base 0","price":1.0}\n{"name":"base 1","price":1.0}\n',
        ),
        ("GET", "/function", None): (200, '"no class"'),
        ("GET", "/inherited", None): (200, '"inherited by base"'),
        ("GET", "/overridden", None): (200, '"base overrides"'),
        ("GET", "/v1/routed/in-a-router", None): (200, '"base"'),
        ("GET", "/late/function", None): (200, '"late"'),
        ("GET", "/static", None): (200, '"static"'),
        # The other class is another deployment; what is left of its path is the catch-all.
        ("GET", "/other", None): (200, '"nothing at other"'),
    }
    requests = [[method, path, body and json.loads(body)] for method, path, body in cases]
    answers, paths = _in_a_process("Greeter", requests)
    assert [list(each) for each in cases.values()] == answers
    parameters = paths["/greet"]["get"]["parameters"]
    assert ["who", "number"] == [each["name"] for each in parameters]
    assert "Greet somebody." == paths["/greet"]["get"]["description"]
    assert "/other" not in paths


@pytest.mark.slow
def test_classes_of_one_application_share_no_routes() -> None:
    answers, paths = _in_a_process(
        "Other", [["GET", "/other", None], ["GET", "/greet?who=Ann", None]]
    )
    assert [[200, '"Other"'], [200, '"nothing at greet"']] == answers
    assert "/overridden" not in paths


@pytest.mark.parity("S-10")
@pytest.mark.parametrize("travels", [False, True], ids=["here", "by-value"])
async def test_one_name_may_stand_for_several_routes(travels: bool) -> None:
    """The class has the last function only, and the application all of them."""
    app = FastAPI()
    router = APIRouter()

    class Above:
        name = "x"

        @app.get("/above")
        async def both(self) -> str:
            return f"get {self.name}"

        @app.post("/above")  # type: ignore[no-redef]
        async def both(self) -> str:  # noqa: F811
            return f"post {self.name}"

    @pyserve.ingress(app)
    class Twice(Above):
        @app.get("/a")
        def one(self) -> str:
            return f"get {self.name}"

        @app.get("/b")  # type: ignore[no-redef]
        async def one(self, number: int = 1) -> str:  # noqa: F811
            return f"{self.name} {number}"

        @router.get("/c")  # type: ignore[no-redef]
        async def one(self) -> str:  # noqa: F811
            return f"router {self.name}"

        @app.get("/static")  # type: ignore[no-redef]
        @staticmethod
        def one() -> str:  # noqa: F811
            return "static"

        @app.post("/a")  # type: ignore[no-redef]
        def one(self) -> str:  # noqa: F811
            return f"post {self.name}"

    app.include_router(router, prefix="/later")
    target: Any = receive(ship(Twice)) if travels else Twice
    built, instance = await _build(target), target()
    answers = {
        (method, path): (await _ask(built, instance, method, path)).json()
        for method, path in (
            ("GET", "/above"), ("POST", "/above"), ("GET", "/a"), ("GET", "/b?number=2"),
            ("GET", "/later/c"), ("GET", "/static"), ("POST", "/a"),
        )
    }  # fmt: skip
    assert ["get x", "post x", "get x", "x 2", "router x", "static", "post x"] == list(
        answers.values()
    )
    assert {"one", "both"} == set(find_methods(instance, {}))


async def test_routes_that_come_after_the_class_are_served_too() -> None:
    app = FastAPI()

    @pyserve.ingress(app)
    class Early:
        def __init__(self) -> None:
            app.add_api_route("/bound", self.later)

        def later(self) -> str:
            return type(self).__name__

    app.add_api_route("/method", Early.later)
    app.get("/function")(lambda: "no class")
    instance = Early()
    built = await _build(Early)
    paths = "/bound", "/method", "/function"
    assert ["Early", "Early", "no class"] == [
        (await _ask(built, instance, "GET", path)).json() for path in paths
    ]


async def test_a_class_that_is_made_again_does_not_serve_the_routes_of_the_older_one() -> None:
    """As a cell of a notebook does it, whose code is another file each time it runs."""
    app = FastAPI()
    code = "class Cell:\n    @app.get('/x')\n    def x(self) -> str: return '{}'\n"
    for number in ("first", "second"):
        scope: dict[str, Any] = {"app": app, "__name__": "cells"}
        exec(compile(code.format(number), f"<cell {number}>", "exec"), scope)
        target = pyserve.ingress(app)(scope["Cell"])
    assert "second" == (await _ask(await _build(target), target(), "GET", "/x")).json()


async def test_the_class_keeps_its_methods_for_handles() -> None:
    app = FastAPI()

    @pyserve.ingress(app)
    class Both:
        @app.get("/x")
        async def route(self) -> int:
            return await self.compute(1)

        async def compute(self, number: int) -> int:
            return number + 1

    assert {"route", "compute"} == set(find_methods(Both(), {}))
    assert 2 == await Both().route()
    assert 2 == (await _ask(await _build(Both), Both(), "GET", "/x")).json()


async def test_a_factory_builds_the_application_in_the_replica() -> None:
    built: list[str] = []

    class Hello:
        async def hello(self) -> str:
            return type(self).__name__

    async def build() -> FastAPI:
        built.append("built")
        app = FastAPI()
        app.get("/hello")(Hello.hello)
        return app

    target = pyserve.ingress(build)(Hello)
    assert [] == built
    assert "Hello" == (await _ask(await _build(target), target(), "GET", "/hello")).json()
    assert ["built"] == built


async def test_other_applications_and_routers_are_served_too() -> None:
    starlette = Starlette(routes=[Route("/x", lambda _: PlainTextResponse("starlette"))])
    router = APIRouter()

    class Routed:
        @router.get("/x")
        async def x(self) -> str:
            return "router"

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("bare")(scope, receive, send)

    for app, target, expected in (
        (starlette, None, "starlette"),
        (router, Routed, '"router"'),
        (bare, None, "bare"),
    ):
        decorated = pyserve.ingress(app)(target)
        instance = decorated()
        assert expected == (await _ask(await _build(decorated), instance, "GET", "/x")).text


async def test_an_application_travels_by_value_where_it_must() -> None:
    app = FastAPI(title="by value")
    router = APIRouter()
    app.state.setting = 3

    @pyserve.ingress(app)
    class Local:
        @app.get("/x")
        async def x(self) -> str:
            return type(self).__name__

        @router.get("/y")
        async def y(self) -> int:
            return 5

    app.include_router(router)
    assert not is_reachable(Local)
    shipped = ship(Local)
    assert shipped.pickled
    received: Any = receive(shipped)
    built = await _build(received)
    assert ("by value", 3) == (built.title, built.state.setting)
    assert "Local" == (await _ask(built, received(), "GET", "/x")).json()
    assert 5 == (await _ask(built, received(), "GET", "/y")).json()


def test_an_empty_class_needs_no_name() -> None:
    target = pyserve.ingress(FastAPI())()
    assert not is_reachable(target)
    assert ingress_of(receive(ship(target))) is not None
    assert "ASGIIngressDeployment" == pyserve.deployment(target).bind().name


def test_an_empty_class_takes_whatever_is_bound() -> None:
    target: Any = receive(ship(pyserve.ingress(FastAPI())()))
    instance = target(1, name="default")
    assert ((1,), {"name": "default"}) == (instance.args, instance.kwargs)
    assert {} == find_methods(instance, {})


def test_what_cannot_be_an_ingress_is_refused() -> None:
    with pytest.raises(UsageError, match="no ASGI application"):
        pyserve.ingress("app")
    with pytest.raises(UsageError, match="no ASGI application"):
        pyserve.ingress(lambda one, two: None)
    decorate: Any = pyserve.ingress(FastAPI())
    with pytest.raises(UsageError, match="is no class"):
        decorate(lambda: None)
    with pytest.raises(UsageError, match=r"above @pyserve\.ingress"):
        decorate(pyserve.deployment(type("A", (), {})))
    with pytest.raises(UsageError, match="has a __call__"):
        decorate(type("A", (), {"__call__": lambda self: None}))


def test_a_route_without_self_is_refused_where_it_is_written() -> None:
    app = FastAPI()

    class Forgotten:
        @app.get("/x")
        async def x() -> str:  # type: ignore[misc]
            return ""

    with pytest.raises(UsageError, match=r"Forgotten\.x is a route and a method"):
        pyserve.ingress(app)(Forgotten)


async def test_a_method_of_a_class_that_is_no_ingress_is_found_at_the_start() -> None:
    app = FastAPI()

    class Stranger:
        @app.get("/x")
        async def x(self) -> str:
            return ""

    target = pyserve.ingress(app)()
    with pytest.raises(UsageError, match=r"Stranger\.x, which gets no `self`"):
        await _build(target)


async def test_a_factory_that_returns_no_application_is_named() -> None:
    def build() -> int:
        return 3

    with pytest.raises(UsageError, match=r"build returned 3"):
        await _build(pyserve.ingress(build)())


@pytest.mark.parametrize("given", [FastAPI, type("Forgotten", (), {})])
def test_class_in_place_of_an_application_is_refused(given: type) -> None:
    with pytest.raises(UsageError, match=f"{given.__name__} is a class; give an instance"):
        pyserve.ingress(given)
