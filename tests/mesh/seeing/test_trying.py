"""Methods are called from the page's server as its form calls them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import grpc
import httpx
import pytest

from pyserve import aio
from pyserve.replica.mesh_methods import DESCRIBING_HTTP
from tests.mesh.seeing.trying import HEADERS, TIMEOUT_S, Page, rpc, trying
from tests.mesh.seeing.trying_apps import PIXEL
from tests.mesh.start.processes import application, standing, status_of
from tests.support.mesh import running_mesh
from tests.support.openapi import problems_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

_PAYLOAD = {"payload": base64.b64encode(b"\x00\x01\x02").decode()}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with trying() as running:
        yield running


def test_one_message_for_one(page: Page) -> None:
    found = page.rpc("Echo", _PAYLOAD)
    assert 200 == found["head"]["status"]
    assert _PAYLOAD == json.loads(found["piece"]["text"])
    assert "x-pyserve-explain" in found["head"]["headers"]
    assert "end" in found


def test_one_message_for_a_stream(page: Page) -> None:
    with page.calling(**rpc("EchoStream", {"messages": 3, **_PAYLOAD}, is_stream=True)) as events:
        found = list(events)
    assert [_PAYLOAD] * 3 == [json.loads(data["text"]) for name, data in found if name == "message"]
    ended = json.loads(dict(found)["status"]["text"])
    assert "error" not in ended
    assert "x-pyserve-explain" in ended["metadata"]


def test_a_stream_for_one_message(page: Page) -> None:
    found = page.rpc("Collect", _PAYLOAD, _PAYLOAD, is_stream=True)
    assert {"messages": "2", "payloadBytes": "6"} == json.loads(found["message"]["text"])


def test_a_stream_for_a_stream_message_by_message(page: Page) -> None:
    with page.calling(**rpc("Converse", is_stream=True, has_more=True)) as events:
        name, begun = next(events)
        assert "begun" == name
        for _ in range(3):
            message = {"message": json.dumps(_PAYLOAD)}
            assert 200 == page.post(f"/api/call/{begun['call']}/message", message).status_code
            answer = next(data for name, data in events if name == "message")
            assert _PAYLOAD == json.loads(answer["text"])
        assert 200 == page.post(f"/api/call/{begun['call']}/end", {}).status_code
        assert ["status", "end"] == [name for name, _ in events]
    late = page.post(f"/api/call/{begun['call']}/message", message)
    assert (400, True) == (late.status_code, "may have ended" in late.json()["error"])


def _count(page: Page, what: str) -> int:
    return int(json.loads(page.rpc("Count", {})["piece"]["text"]).get(what, 0))


def test_messages_come_as_they_are_made_and_who_leaves_cancels(page: Page) -> None:
    before = _count(page, "cancelled")
    endless = {"messages": 1_000_000, "each": {"delayS": 0.01}}
    with page.calling(**rpc("PerformStream", endless, is_stream=True)) as events:
        for _ in range(3):
            assert "message" == next(name for name, _ in events if name not in ("begun", "head"))
        assert before == _count(page, "cancelled")
    wait_until(lambda: _count(page, "cancelled") == before + 1, TIMEOUT_S)


def test_a_silent_call_is_cancelled_too(page: Page) -> None:
    started, cancelled = _count(page, "started"), _count(page, "cancelled")
    with page.calling(**rpc("Perform", {"delayS": 60})) as events:
        assert "begun" == next(events)[0]
        wait_until(lambda: _count(page, "started") == started + 1, TIMEOUT_S)
    wait_until(lambda: _count(page, "cancelled") == cancelled + 1, TIMEOUT_S)


def test_failures_have_their_status(page: Page) -> None:
    bad = {"status": {"code": 5, "message": "no such thing"}}
    one = page.rpc("Perform", bad)
    assert 404 == one["head"]["status"]
    assert "no such thing" == json.loads(one["piece"]["text"])["message"]
    many = page.rpc("PerformStream", {"messages": 1, "each": bad}, is_stream=True)
    assert "not_found" == json.loads(many["status"]["text"])["error"]["code"]
    late = page.rpc("Perform", {"delayS": 60}, timeout_s=0.2)
    assert "deadline_exceeded" == json.loads(late["piece"]["text"])["code"]


def test_plain_handlers_and_applications(page: Page) -> None:
    json_type = {"content_type": "application/json"}
    house = page.http("POST", "/houses", b'{"rooms": 1}', **json_type)
    assert {"price": 110_000.0} == json.loads(house["piece"]["text"])
    price = page.http("GET", "/shop/price/tea?count=2")
    assert {"item": "tea", "price": "6 EUR"} == json.loads(price["piece"]["text"])
    order = page.http("POST", "/shop/orders", b'{"item": "cake"}', **json_type)
    assert 201 == order["head"]["status"]
    pixel = page.http("GET", "/shop/pixel")
    assert PIXEL == base64.b64decode(pixel["piece"]["base64"])
    wrong = page.http("POST", "/shop/orders", b"{}", **json_type)
    assert 422 == wrong["head"]["status"]


def test_a_stream_of_an_application_comes_as_it_is_made(page: Page) -> None:
    wanted = {"kind": "http", "verb": "GET", "path": "/shop/ticks", "headers": {}}
    with page.calling(**wanted) as events:
        pieces = (data["text"] for name, data in events if name == "piece")
        assert "data: 0\n\n" == next(pieces)[:9]
        assert next(pieces)
    wait_until(lambda: page.http("GET", "/shop/left")["piece"]["text"] != "0", TIMEOUT_S)


def test_the_document_is_of_all_of_them_and_says_what_is_true(page: Page) -> None:
    answer = page.get("/-/openapi.json")
    assert "application/json" == answer.headers["content-type"]
    document = answer.json()
    assert [] == problems_of(document)
    assert {
        ("/services.echo.Echo/Echo", "post"),
        ("/services.echo.Echo/PerformStream", "post"),
        ("/houses", "post"),
        ("/shop/price/{item}", "get"),
        ("/shop/orders", "post"),
    } <= {(path, verb) for path, item in document["paths"].items() for verb in item}
    assert "x-pyserve-undescribed" not in document
    url = document["servers"][0]["url"]
    order = httpx.post(
        f"{url}/shop/orders", json={"item": "cake"}, timeout=TIMEOUT_S, trust_env=False
    )
    assert str(order.status_code) in document["paths"]["/shop/orders"]["post"]["responses"]
    house = (
        document["components"]["schemas"].get("houses.House")
        or (
            document["paths"]["/houses"]["post"]["requestBody"]["content"]["application/json"][
                "schema"
            ]
        )
    )
    assert ["rooms"] == house["required"]


def test_each_of_them_has_a_form(page: Page) -> None:
    found = page.get("/api/methods.json").json()
    assert found["can_be_tried"]
    assert [] == found["undescribed"]
    paths = {each["path"] for each in found["methods"]}
    assert {"/services.echo.Echo/Converse", "/houses", "/shop/files"} <= paths


def test_another_site_cannot_call(page: Page) -> None:
    wanted = rpc("Echo", _PAYLOAD)
    for headers in ({}, {**HEADERS, "origin": "http://elsewhere.example"}):
        answer = httpx.post(
            f"{page.url}/api/call", json=wanted, headers=headers, timeout=TIMEOUT_S, trust_env=False
        )
        assert answer.status_code in (401, 403)


async def test_clients_cannot_ask_replicas_for_documents(page: Page) -> None:
    url = page.get("/-/openapi.json").json()["servers"][0]["url"]
    async with aio.insecure_channel(url.partition("://")[2]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(DESCRIBING_HTTP)(b"")
    assert grpc.StatusCode.UNIMPLEMENTED == refused.value.code()


@pytest.mark.parametrize("is_on", [False, True])
def test_a_mesh_that_stays_calls_nothing_unless_it_is_told_to(
    environment: dict[str, str], *, is_on: bool
) -> None:
    environment = {**environment, **({"PYSERVE_TRY_METHODS": "1"} if is_on else {})}
    with standing(environment), application(environment, "tests.mesh.seeing.apps:echo") as run:
        assert "try it in a browser" not in run.output()
        (ingress,) = status_of(environment)["ingresses"]
        page = Page(f"http://{ingress['admin']}")
        assert is_on == page.get("/api/methods.json").json()["can_be_tried"]
        assert (200 if is_on else 404) == page.post("/api/call", rpc("Echo", {})).status_code
        assert "/services.echo.Echo/Echo" in page.get("/-/openapi.json").json()["paths"]


def test_a_run_that_is_told_so_calls_nothing() -> None:
    variables = {"PYSERVE_METRICS_PORT": "0", "PYSERVE_TRY_METHODS": "0"}
    with running_mesh("tests.mesh.seeing.apps:echo", environment=variables) as mesh:
        assert "try it in a browser" not in mesh.output()
