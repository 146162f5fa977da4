"""The resources below ``/api`` as clients see them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from pyserve.admin.api.resources import Api
from pyserve.admin.api.sampler import Sampler
from pyserve.admin.api.snapshot import MeshSnapshot
from pyserve.admin.calls.store import CallStore
from pyserve.admin.context import Described, Door
from pyserve.errors import MeshUnavailable
from services.echo import echo_pb2
from tests.support.openapi import problems_of
from tests.unit.admin.builders import CART, attempts, look, routed
from tests.unit.admin.test_calls import Record, attempt, child

_FORM = {"x-pyserve-page": "1"}


class Mesh:
    def __init__(self) -> None:
        self.looks = 0
        self.is_gone = False
        self.opened: Door | None = None
        self.records: list[Record] = []
        self.kept = CallStore()
        self.children: dict[str, list[str]] = {}
        self.delays: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []
        self.odd: dict[str, Any] = {}

    async def take(self) -> MeshSnapshot:
        if self.is_gone:
            raise MeshUnavailable("the controller does not answer")
        self.looks += 1
        return look(float(self.looks), {CART: routed(Cart_1=attempts(10 * self.looks, 0.005))})

    def door(self) -> Door | None:
        return self.opened

    def models(self) -> dict[str, tuple[str, ...]]:
        return {}

    def replicas_of(self, target: str) -> list[str]:
        return self.children.get(target, [])

    def kept_calls(self) -> CallStore:
        return self.kept

    def take_calls(self) -> None:
        records, self.records = self.records, []
        self.kept.add(records)

    async def delays_of(self, target: str, replica_id: str, request_id: str) -> dict[str, Any]:
        self.asked.append((target, replica_id, request_id))
        if replica_id in self.gone:
            raise ConnectionError("UNAVAILABLE: it has ended")
        return self.delays.get(replica_id, {})

    def described(self) -> list[Described]:
        file = echo_pb2.DESCRIPTOR
        files = tuple(each.serialized_pb for each in (*file.dependencies, file))
        echo = Described("shop", "Echo", ("services.echo.Echo",), files)
        odd = [Described("odd", "Odd", (), (), ("/odd",))] if self.odd else []
        return [echo, *odd, Described("shop", "Web", (), (), ("/shop",))]

    async def document_of(self, target: str, replica_id: str) -> dict[str, Any]:
        self.asked.append((target, replica_id, "document"))
        if replica_id in self.gone:
            raise ConnectionError("UNAVAILABLE: it has ended")
        if target == "odd/Odd":
            return self.odd
        operation = {"summary": "Buy", "responses": {"200": {"description": ""}}}
        info = {"title": "", "version": ""}
        return {"openapi": "3.1.0", "info": info, "paths": {"/buy": {"post": operation}}}


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


@pytest.fixture
async def client(mesh: Mesh) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(mesh, tries=True) as opened:
        yield opened


@asynccontextmanager
async def client_of(mesh: Mesh, *, tries: bool) -> AsyncIterator[httpx.AsyncClient]:
    sampler = Sampler(mesh.take, interval_s=0.01, first_interval_s=0.01)
    api = Api(sampler, mesh, tries=tries)
    transport = httpx.ASGITransport(Starlette(routes=api.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
        yield opened


def events_of(answer: httpx.Response) -> list[tuple[str, Any]]:
    """Return the events of an answer."""
    found = []
    for each in answer.text.split("\n\n")[:-1]:
        name, data = each.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


class Ingress(ThreadingHTTPServer):
    """Answers with what it got."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.seen.append((self.path, dict(self.headers.items()), body))
                answer = b'{"text":"fine"}'
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.send_header("set-cookie", "secret=1")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_arguments: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def ingress(mesh: Mesh) -> Iterator[Ingress]:
    with Ingress() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        mesh.opened = Door(f"127.0.0.1:{server.server_port}", speaks_tls=False)
        yield server
        server.shutdown()
        thread.join()


async def test_an_overview(client: httpx.AsyncClient):
    answer = await client.get("/api/overview.json")
    assert (200, "no-store") == (answer.status_code, answer.headers["cache-control"])
    assert ["shop/Cart"] == [each["target"] for each in answer.json()["deployments"]]


async def test_a_deployment_and_one_that_is_not_there(client: httpx.AsyncClient):
    found = (await client.get("/api/deployments/shop/Cart.json")).json()
    assert (10, "shop/Cart") == (sum(found["latency"]["counts"]), found["target"])
    missing = await client.get("/api/deployments/shop/Missing.json")
    assert (404, "the mesh has no deployment shop/Missing") == (
        missing.status_code,
        missing.json()["error"],
    )


async def test_a_mesh_that_is_gone_is_said_so(mesh: Mesh, client: httpx.AsyncClient):
    mesh.is_gone = True
    answer = await client.get("/api/overview.json")
    assert (503, "the controller does not answer") == (answer.status_code, answer.json()["error"])


async def test_methods_and_operations_have_forms(client: httpx.AsyncClient, mesh: Mesh):
    mesh.children = {"shop/Web": ["Web#1"]}
    found = (await client.get("/api/methods.json")).json()
    assert found["can_be_tried"]
    by_kind = {each["kind"]: each for each in found["methods"]}
    assert ("services.echo.Echo", "/shop/buy") == (
        by_kind["rpc"]["service"],
        by_kind["http"]["path"],
    )


async def test_the_document_is_of_all_that_is_served(client: httpx.AsyncClient, mesh: Mesh):
    mesh.children = {"shop/Web": ["Web#1"]}
    document = (await client.get("/-/openapi.json")).json()
    assert {"/shop/buy", "/services.echo.Echo/Echo"} <= set(document["paths"])
    assert "x-pyserve-undescribed" not in document
    assert [] == problems_of(document)


def _deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"properties": {"a": found}}
    return found


_OPERATION = {"responses": {"200": {"description": ""}}}


@pytest.mark.parametrize(
    "odd",
    [
        {"paths": ["/a"]},
        {"paths": {"/a": None}},
        {"paths": {"/a": {"get": ["x"]}}},
        {"paths": {"/a": {"get": {**_OPERATION, "parameters": [{"name": "a"}]}}}},
        {"paths": {"/a": {"get": {**_OPERATION, "tags": 7, "parameters": None}}}},
        {"paths": {"/a": {"get": {**_OPERATION, "security": [7]}}}},
        {"paths": {"/a": {"get": {**_OPERATION, "x-ratio": float("nan")}}}},
        {"paths": {"/a": {"get": {**_OPERATION, "requestBody": {"content": {"*/*": None}}}}}},
        {"paths": {"/a": {"get": _OPERATION}}, "components": {"schemas": ["A"]}},
        {"paths": {"/a": {"get": _OPERATION}}, "components": {"schemas": {"A": _deep(2_000)}}},
        {"paths": {7: {"get": _OPERATION}}},
    ],
)
async def test_a_document_that_is_none_hides_nothing_of_the_others(
    client: httpx.AsyncClient, mesh: Mesh, odd: dict[str, Any]
):
    mesh.odd = {"openapi": "3.1.0", "info": {}, **odd}
    mesh.children = {"shop/Web": ["Web#1"], "odd/Odd": ["Odd#1"]}

    document = (await client.get("/-/openapi.json")).json()
    forms = (await client.get("/api/methods.json")).json()

    assert {"/shop/buy", "/services.echo.Echo/Echo"} <= set(document["paths"])
    assert [] == [path for path in document["paths"] if path.startswith("/odd")]
    (missing,) = document["x-pyserve-undescribed"]
    assert ("odd", "/odd") == (missing["application"], missing["prefix"])
    assert missing["reason"].startswith("its document is not as OpenAPI has it: ")
    assert "/shop/buy" in [each["path"] for each in forms["methods"]]


async def test_a_replica_is_asked_once_and_the_next_one_if_it_does_not_say(
    client: httpx.AsyncClient, mesh: Mesh
):
    mesh.children, mesh.gone = {"shop/Web": ["Web#1", "Web#2", "Web#3"]}, {"Web#1"}
    for _ in range(2):
        assert "/shop/buy" in (await client.get("/-/openapi.json")).json()["paths"]
    assert ["Web#1", "Web#2"] == [each for _, each, _ in mesh.asked]
    # Others have taken their places.
    mesh.children = {"shop/Web": ["Web#4"]}
    assert "/shop/buy" in (await client.get("/-/openapi.json")).json()["paths"]
    assert "Web#4" == mesh.asked[-1][1]
    # Scaled to zero: what was known holds.
    mesh.children = {}
    assert "/shop/buy" in (await client.get("/-/openapi.json")).json()["paths"]


async def test_replicas_that_do_not_say_leave_a_reason(client: httpx.AsyncClient, mesh: Mesh):
    mesh.children, mesh.gone = {"shop/Web": ["Web#1"]}, {"Web#1"}
    for path in ("/-/openapi.json", "/api/methods.json"):
        found = (await client.get(path)).json()
        (missing,) = found.get("undescribed") or found["x-pyserve-undescribed"]
        assert "Web#1 does not say: UNAVAILABLE: it has ended" == missing["reason"]


async def test_where_calls_are_off_nothing_calls(mesh: Mesh, ingress: Ingress):
    wanted = {"kind": "rpc", "path": "/services.echo.Echo/Echo", "messages": ["{}"]}
    async with client_of(mesh, tries=False) as client:
        for path in ("/api/call", "/api/call/x/message", "/api/call/x/end"):
            answer = await client.post(path, json=wanted, headers=_FORM)
            assert 404 == answer.status_code
        assert not (await client.get("/api/methods.json")).json()["can_be_tried"]
    assert [] == ingress.seen


async def test_a_call_goes_to_the_ingress_as_json(client: httpx.AsyncClient, ingress: Ingress):
    wanted = {
        "kind": "rpc",
        "path": "/services.echo.Echo/Echo",
        "messages": ['{"text": "größer"}'],
        "application": "shop",
        "authorization": "Bearer abc",
        "timeout_s": 2,
    }
    answer = await client.post("/api/call", json=wanted, headers=_FORM)
    begun, head, piece, end = events_of(answer)
    assert ("begun", 200) == (begun[0], head[1]["status"])
    assert {"text": "fine"} == json.loads(piece[1]["text"])
    assert "set-cookie" not in head[1]["headers"]
    assert ("end", True) == (end[0], 0 < end[1]["took_s"] < 2)
    ((path, headers, body),) = ingress.seen
    assert ("/services.echo.Echo/Echo", '{"text": "größer"}') == (path, body.decode())
    sent = {name.lower(): value for name, value in headers.items()}
    assert ("shop", "Bearer abc", "2000", "1") == tuple(
        sent[name]
        for name in ("application", "authorization", "connect-timeout-ms", "x-pyserve-explain")
    )


async def test_a_request_of_plain_http_goes_as_it_is(client: httpx.AsyncClient, ingress: Ingress):
    wanted = {
        "kind": "http",
        "verb": "POST",
        "path": "/shop/buy?of=tea",
        "headers": {"X-Key": "1", "content-type": "text/plain"},
        "body": base64.b64encode(b"\x00tea").decode(),
    }
    answer = await client.post("/api/call", json=wanted, headers=_FORM)
    assert ["begun", "head", "piece", "end"] == [name for name, _ in events_of(answer)]
    ((path, headers, body),) = ingress.seen
    assert ("/shop/buy?of=tea", b"\x00tea") == (path, body)
    assert ("1", "30") == (headers["x-key"], headers["x-request-timeout-seconds"])


async def test_a_call_without_the_header_of_the_page_is_refused(
    client: httpx.AsyncClient, ingress: Ingress
):
    wanted = {"kind": "rpc", "path": "/services.echo.Echo/Echo", "messages": ["{}"]}
    for path in ("/api/call", "/api/call/x/message", "/api/call/x/end"):
        answer = await client.post(path, json=wanted)
        assert (403, []) == (answer.status_code, ingress.seen)


_RPC = {"kind": "rpc", "path": "/a.B/C", "messages": ["{}"]}
_HTTP = {"kind": "http", "verb": "GET", "path": "/a", "headers": {}}


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        {},
        {"kind": ["rpc"]},
        {**_RPC, "kind": "other"},
        {**_RPC, "messages": [1]},
        {**_RPC, "messages": []},
        {**_RPC, "messages": ["{}", "{}"]},
        {**_RPC, "path": "/-/healthz/x"},
        {**_RPC, "path": "/a.B/C\r\nx: y"},
        {**_RPC, "timeout_s": 0},
        {**_RPC, "timeout_s": float("inf")},
        {**_RPC, "application": "a\nb"},
        {**_HTTP, "verb": "TRACE"},
        {**_HTTP, "path": "a"},
        {**_HTTP, "path": "/a b"},
        {**_HTTP, "path": "/a HTTP/1.1\r\nx: y"},
        {**_HTTP, "headers": {"a\r\nb": "c"}},
        {**_HTTP, "headers": {"a": "c\r\nd"}},
        {**_HTTP, "headers": {"Content-Length": "3"}},
        {**_HTTP, "headers": {"host": "other"}},
        {**_HTTP, "headers": 1},
        {**_HTTP, "body": "no base64"},
    ],
)
async def test_what_cannot_be_called_is_refused_with_a_reason(
    wanted: object, client: httpx.AsyncClient, ingress: Ingress
):
    answer = await client.post("/api/call", content=json.dumps(wanted), headers=_FORM)
    assert (400, []) == (answer.status_code, ingress.seen)
    assert answer.json()["error"]


async def test_a_call_that_is_not_there_takes_no_message(client: httpx.AsyncClient):
    for path, body in (("message", {"message": "{}"}), ("message", {}), ("end", {})):
        answer = await client.post(f"/api/call/unknown/{path}", json=body, headers=_FORM)
        assert 400 == answer.status_code


async def test_a_message_that_is_too_long_is_refused(client: httpx.AsyncClient, ingress: Ingress):
    answer = await client.post("/api/call", content=b"x" * ((8 << 20) + 1), headers=_FORM)
    assert (413, []) == (answer.status_code, ingress.seen)


async def test_no_ingress_and_one_that_is_gone(
    mesh: Mesh, client: httpx.AsyncClient, unused_tcp_port: int
):
    answer = await client.post("/api/call", json=_RPC, headers=_FORM)
    assert 503 == answer.status_code
    mesh.opened = Door(f"127.0.0.1:{unused_tcp_port}", speaks_tls=False)
    answer = await client.post("/api/call", json=_RPC, headers=_FORM)
    assert 502 == answer.status_code


async def test_a_call_is_explained_with_what_replicas_say(mesh: Mesh, client: httpx.AsyncClient):
    mesh.records = [Record("slow-one", attempts=[attempt(0, 100, 100)])]
    mesh.children = {"shop/Prices": ["Prices#1", "Prices#2"]}
    mesh.delays = {"Cart#1": {"calls": [child(5, 90)]}}
    mesh.gone = {"Prices#2"}
    answer = await client.get("/api/calls/slow-one")
    found = answer.json()
    assert (200, "called shop/Prices.of") == (answer.status_code, found["cause"]["text"])
    assert {"Prices#2": "UNAVAILABLE: it has ended"} == found["silent"]
    assert [
        ("shop/Cart", "Cart#1", "slow-one"),
        ("shop/Prices", "Prices#1", "slow-one"),
        ("shop/Prices", "Prices#2", "slow-one"),
    ] == mesh.asked


async def test_a_call_that_is_not_kept_names_the_header(client: httpx.AsyncClient):
    answer = await client.get("/api/calls/unknown/of%20course")
    assert 404 == answer.status_code
    assert "no call unknown/of course is kept" in answer.json()["error"]
    assert "x-pyserve-explain: 1" in answer.json()["error"]


async def test_a_mesh_that_is_gone_leaves_what_the_ingress_knows(
    mesh: Mesh, client: httpx.AsyncClient
):
    mesh.records = [Record("slow-one", attempts=[attempt(0, 100, 100)])]
    mesh.is_gone = True
    found = (await client.get("/api/calls/slow-one")).json()
    assert "ran in Cart#1" == found["cause"]["text"]
    assert {"the mesh": "the controller does not answer"} == found["silent"]


async def test_calls_are_listed_by_why_they_were_kept(mesh: Mesh, client: httpx.AsyncClient):
    mesh.records = [Record("one"), Record("two", kept_for="failed", http_status=500)]
    found = (await client.get("/api/calls.json")).json()
    assert {"asked": 0, "failed": 1, "slow": 1, "sampled": 0} == {
        kind: each["kept"] for kind, each in found.items()
    }
    assert ("two", 500) == tuple(
        found["failed"]["calls"][0][name] for name in ("request_id", "http_status")
    )
