"""Requests and answers of plain handlers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import pyserve
from pyserve import _router
from pyserve.api.handles.handle import DeploymentHandle
from tests.unit.replica.native_client import Client

pytestmark = pytest.mark.slow


@pytest.mark.parity("S-12")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_any_method_and_path_below_the_prefix_come_as_a_request(
    client: httpx.Client, method: str
) -> None:
    content = b"body" if method in {"POST", "PUT", "PATCH"} else b""
    response = client.request(
        method, "/about?x=1", content=content, headers={"x-own": "v", "connection": "close"}
    )
    assert 200 == response.status_code, response.text
    about = response.json()
    assert (method, "/about", {"x": "1"}, len(content)) == (
        about["method"],
        about["path"],
        about["query"],
        about["body_bytes"],
    )
    assert client.base_url.netloc.decode() == about["host"]
    assert "x-own" in about["headers"]
    assert "connection" not in about["headers"]
    assert "Web" == about["deployment"]


def test_the_answer_of_head_has_no_body(client: httpx.Client) -> None:
    response = client.head("/about")
    assert (200, b"") == (response.status_code, response.content)
    assert "application/json" == response.headers["content-type"]
    # The connection is in step.
    assert 200 == client.get("/about").status_code


@pytest.mark.parametrize("size_bytes", [0, 1, 65_536, 65_537, 5_000_000])
def test_bodies_of_any_size_come_and_go(client: httpx.Client, size_bytes: int) -> None:
    body = bytes(range(256)) * (size_bytes // 256 + 1)
    announced = client.post("/echo", content=body[:size_bytes])
    chunked = client.post("/echo", content=iter([body[:size_bytes]]))
    assert body[:size_bytes] == announced.content
    assert body[:size_bytes] == chunked.content


def test_http2_is_spoken_too(base_url: str) -> None:
    with httpx.Client(base_url=base_url, http1=False, http2=True, timeout=30) as client:
        response = client.post("/echo", content=b"x" * 200_000)
    assert ("HTTP/2", b"x" * 200_000) == (response.http_version, response.content)


def test_the_longest_prefix_wins_by_segments(client: httpx.Client) -> None:
    assert 6 == client.post("/multiply", json={"left": 2, "right": 3}).json()["product"]
    assert b'{"number":0}\n' == client.post("/multiply/count", json=1).content
    assert "/multiplying/about" == client.get("/multiplying/about").json()["path"]


def test_a_function_gets_its_dataclass_and_runs_on_a_thread(client: httpx.Client) -> None:
    answer = client.post("/multiply/below/it", json={"left": 2}).json()
    assert {"product": 2.0, "is_main_thread": False} == answer
    wrong = client.post("/multiply", json={"right": "x"})
    assert 422 == wrong.status_code
    assert [["body", "left"], ["body", "right"]] == [e["loc"] for e in wrong.json()["detail"]]
    assert 400 == client.post("/multiply", content=b"{").status_code


@pytest.mark.parity("S-12")
def test_responses_keep_status_headers_and_cookies(client: httpx.Client) -> None:
    response = client.get("/response")
    assert (418, "teapot", "1") == (response.status_code, response.text, response.headers["x-own"])
    assert ["a=1; Path=/; SameSite=lax", "b=2; Path=/; SameSite=lax"] == (
        response.headers.get_list("set-cookie")
    )
    assert {"array": [0, 1, 2], "number": 0.5} == client.get("/arrays").json()
    empty = client.get("/nothing")
    assert (200, b"") == (empty.status_code, empty.content)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("INVALID_ARGUMENT", 400),
        ("UNAUTHENTICATED", 401),
        ("PERMISSION_DENIED", 403),
        ("NOT_FOUND", 404),
        ("DEADLINE_EXCEEDED", 408),
        ("RESOURCE_EXHAUSTED", 503),
        ("UNAVAILABLE", 503),
        ("UNIMPLEMENTED", 501),
        ("INTERNAL", 500),
    ],
)
def test_abort_has_the_status_of_its_code(client: httpx.Client, code: str, status: int) -> None:
    response = client.get("/abort", params={"code": code})
    assert (status, "the details\n") == (response.status_code, response.text)


def test_exceptions_are_500_and_http_exceptions_what_they_say(client: httpx.Client) -> None:
    assert 500 == client.get("/fail").status_code
    refused = client.get("/refuse")
    assert (410, "it is gone") == (refused.status_code, refused.text)


async def test_a_websocket_is_refused_as_an_http_request(base_url: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(base_url.replace("http", "ws") + "/about", open_timeout=30)
    assert 400 == refused.value.response.status_code


def test_an_exit_fails_its_request_and_not_the_replica(client: httpx.Client) -> None:
    assert [500, 200] == [client.get(path).status_code for path in ("/exit", "/about")]


def test_a_child_call_may_be_returned_as_it_is(
    client: httpx.Client, ledger: DeploymentHandle, key: str
) -> None:
    ledger.note.remote(key, "x").result(timeout_s=30)
    assert ["x"] == client.get("/child", params={"key": key}).json()


@pytest.mark.parity("G-37")
def test_the_request_id_is_taken_or_made_and_sent_back_once(client: httpx.Client) -> None:
    given = client.get("/about", headers={"X-Request-ID": "mine"})
    made = [client.get("/about") for _ in range(2)]
    assert ("mine", ["mine"]) == (
        given.json()["request_id"],
        given.headers.get_list("x-request-id"),
    )
    ids = [each.headers["x-request-id"] for each in made]
    assert ids == [each.json()["request_id"] for each in made]
    assert 2 == len(set(ids))
    failed = client.get("/fail", headers={"x-request-id": "failed"})
    assert ["failed"] == failed.headers.get_list("x-request-id")


@pytest.mark.parity("S-30")
async def test_a_model_is_named_on_all_three_ways_in(base_url: str) -> None:
    spellings = [
        "serve_multiplexed_model_id",
        "Serve-Multiplexed-Model-Id",
        "SERVE_MULTIPLEXED-MODEL_ID",
        "multiplexed_model_id",
    ]
    async with httpx.AsyncClient(base_url=base_url, timeout=30) as client:
        by_http = [
            (await client.post("/models", json={"a": 1}, headers={name: "mine"})).json()
            for name in spellings
        ]
    handle = pyserve.get_app_handle("models").options(multiplexed_model_id="mine")
    by_handle = await handle.remote({"a": 1})
    by_grpc = await _call_with_metadata(base_url, "mine")
    expected = {"model": "MINE", "keys": ["a"]}
    assert [expected] * 6 == [*by_http, by_handle, by_grpc]


class Stranger(Client):
    """A gRPC client of the ingress that speaks JSON."""

    def __init__(self, base_url: str) -> None:
        self._channel = _router.Channel(base_url.removeprefix("http://"))
        self._prefix = "/models."


async def _call_with_metadata(base_url: str, model_id: str) -> Any:
    stranger = Stranger(base_url)
    try:
        outcome = await stranger.unary(
            "Models/__call__",
            b'[[{"a":1}],{}]',
            subtype="json",
            framed=False,
            metadata=(("multiplexed_model_id", model_id),),
        )
    finally:
        stranger.close()
    assert outcome.message is not None, outcome
    return orjson.loads(outcome.message)


async def test_requests_meet_in_batches(base_url: str) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=30) as client:
        answers = await asyncio.gather(
            *(client.post("/batches", json={"n": number}) for number in range(8))
        )
    assert list(range(8)) == [each.json()["n"] for each in answers]
    assert max(each.json()["of"] for each in answers) > 1
