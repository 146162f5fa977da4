"""From a client of a language model to an engine and back: models, errors, ends."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
from typing import Any

import httpx
import pytest

import pyserve
from pyserve.api.handles.handle import DeploymentHandle
from tests.mesh.llm.apps import PLACES
from tests.mesh.llm.asking import CHAT, chat, data_of, text_of
from tests.support.mesh import RunningMesh
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 30


def content_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_chat_is_answered_whole_and_in_events(client: httpx.Client) -> None:
    whole = client.post(CHAT, json=chat("one two three"))
    assert content_of(whole) == "one two three "
    assert whole.json()["model"] == "alpha"
    assert whole.headers["x-request-id"]
    with client.stream("POST", CHAT, json=chat("one two three", stream=True)) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert text_of(data_of(response.iter_lines())) == "one two three "
    # The connection is used again after a stream.
    assert client.get("/v1/models").status_code == 200


def test_anthropics_clients_find_their_answers_too(client: httpx.Client) -> None:
    body = chat("one two", "solo", max_tokens=9)
    message = client.post("/solo/v1/messages", json=body)
    assert message.status_code == 200, message.text
    assert message.json()["content"][0]["text"] == "one two "
    assert message.headers.get_list("request-id")
    assert "," not in message.headers["request-id"]
    with client.stream("POST", "/solo/v1/messages", json=body | {"stream": True}) as response:
        kinds = [json.loads(data)["type"] for data in data_of(response.iter_lines())]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_thousands_of_tokens_come_whole_and_in_order(client: httpx.Client) -> None:
    expected = "".join(f"{number} " for number in range(5000))
    assert content_of(client.post(CHAT, json=chat("count 5000"))) == expected
    with client.stream("POST", CHAT, json=chat("count 5000", stream=True)) as response:
        assert text_of(data_of(response.iter_lines())) == expected


@pytest.mark.parametrize(
    ("path", "model", "expected"),
    [
        ("", "alpha", "alpha/ "),
        ("", "alpha-latest", "alpha/ "),
        ("", "beta", "beta/ "),
        ("", "gamma", "gamma/ "),
        ("", "gamma:poems", "gamma/poems "),
        ("", "gamma-latest:poems", "gamma/poems "),
        ("", "gamma:poems:v2", "gamma/poems:v2 "),
        ("/solo", "solo", "solo/ "),
        ("/solo", None, "solo/ "),
    ],
)
def test_a_model_is_found_by_its_names(
    client: httpx.Client, path: str, model: str | None, expected: str
) -> None:
    response = client.post(path + CHAT, json=chat("model", model))
    assert content_of(response) == expected
    assert response.json()["model"] == (model or "solo")


def test_models_are_listed_and_described(client: httpx.Client) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [each["id"] for each in listed["data"]] == ["alpha", "beta", "gamma"]
    assert all(isinstance(each["created"], int) and each["created"] for each in listed["data"])
    assert [each["id"] for each in client.get("/solo/v1/models").json()["data"]] == ["solo"]
    one = client.get("/v1/models/alpha-latest")
    assert one.status_code == 200, one.text
    assert client.head("/v1/models").content == b""
    assert error_of(client.get("/v1/models/delta"))["code"] == "model_not_found"


def test_requests_without_an_answer_say_why_in_the_shape_of_the_api(client: httpx.Client) -> None:
    unknown = client.post(CHAT, json=chat("one", "delta"))
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "model_not_found")
    assert "alpha, beta, gamma" in error_of(unknown)["message"]
    # Each application has its own models.
    assert client.post(f"/solo{CHAT}", json=chat("one")).status_code == 404
    unnamed = client.post(CHAT, json=chat("one", None))
    assert (unnamed.status_code, error_of(unnamed)["param"]) == (400, "model")
    assert client.post(CHAT, content=b"{").status_code == 400
    dialect = client.post("/solo/v1/messages", content=b"{")
    assert (dialect.status_code, dialect.json()["type"]) == (400, "error")
    assert dialect.headers["request-id"] == dialect.headers["x-request-id"]
    wrong = client.get(CHAT)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert error_of(wrong)["message"]
    dialect = client.get("/v1/messages")
    assert (dialect.status_code, dialect.json()["type"]) == (405, "error")


def test_a_large_body_is_refused_before_it_is_read(client: httpx.Client) -> None:
    large = json.dumps(chat("x" * (4 << 20))).encode()
    told = client.post(CHAT, content=large)
    assert (told.status_code, "larger than" in error_of(told)["message"]) == (413, True)

    def pieces() -> Any:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S) as other:
        assert other.post(CHAT, content=pieces()).status_code == 413


def test_a_failure_before_the_first_token_is_a_status(client: httpx.Client) -> None:
    for script, status in [("refuse", 400), ("break", 500)]:
        for stream in (False, True):
            response = client.post(CHAT, json=chat(script, stream=stream))
            assert response.status_code == status, response.text
            assert error_of(response)["message"]
    assert error_of(client.post(CHAT, json=chat("refuse")))["message"] == "the engine refuses it"


def test_a_failure_in_mid_stream_is_an_event_and_the_end(client: httpx.Client) -> None:
    with client.stream("POST", CHAT, json=chat("one break", stream=True)) as response:
        assert response.status_code == 200
        *_, error, last = data_of(response.iter_lines())
    assert last == "[DONE]"
    assert json.loads(error)["error"]["message"]
    assert client.post(CHAT, json=chat("one break")).status_code == 500


@pytest.mark.parametrize("script", ["exit", "one exit"])
@pytest.mark.parametrize("n", [1, 3])
def test_an_engine_that_wants_to_exit_fails_its_request_only(
    client: httpx.Client, script: str, n: int
) -> None:
    response = client.post(CHAT, json=chat(script, n=n))
    assert response.status_code == 500, response.text
    with client.stream("POST", CHAT, json=chat(f"one {script}", n=n, stream=True)) as streamed:
        *_, last = data_of(streamed.iter_lines())
    assert last == "[DONE]"
    assert content_of(client.post(CHAT, json=chat("two"))) == "two "


def test_a_compressed_body_is_refused_by_its_coding(client: httpx.Client) -> None:
    body = gzip.compress(json.dumps(chat("one")).encode())
    for path in (CHAT, "/v1/messages"):
        response = client.post(path, content=body, headers={"content-encoding": "gzip"})
        assert response.status_code == 415, response.text
        assert response.headers["accept-encoding"] == "identity"
        assert '"gzip"' in error_of(response)["message"]
    plain = {"content-encoding": "identity"}
    assert content_of(client.post(CHAT, json=chat("one"), headers=plain)) == "one "


def test_a_delta_that_is_too_large_is_not_asked_for_again(client: httpx.Client) -> None:
    response = client.post(CHAT, json=chat("long 5000000"))
    assert response.status_code == 500, response.text
    assert "larger than the limit" in error_of(response)["message"]


async def until(ledger: DeploymentHandle, key: str, what: str) -> list[str]:
    found: list[str] = await ledger.until.options(timeout_s=PATIENCE_S).remote(key, what)
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_stops_the_engine(
    base_url: str, ledger: DeploymentHandle, key: str, *, stream: bool
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        body = chat(f"hold {key}", stream=stream)
        request = asyncio.create_task(client.post(CHAT, json=body))
        await until(ledger, key, "began")
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    assert await until(ledger, key, "closed") == ["began", "closed"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_stops_the_engine_and_the_call_counts_as_answered(
    mesh: RunningMesh, ledger: DeploymentHandle, key: str, *, stream: bool
) -> None:
    async with httpx.AsyncClient(base_url=f"http://{mesh.address}", timeout=PATIENCE_S) as client:
        body = chat(f"hold {key}", stop=["7 8"], stream=stream)
        response = await client.post(CHAT, json=body, headers={"x-request-id": key})
    if stream:
        assert text_of(data_of(response.text.splitlines())) == "0 1 2 3 4 5 6 "
    else:
        assert content_of(response) == "0 1 2 3 4 5 6 "
        assert response.json()["choices"][0]["finish_reason"] == "stop"
    assert response.headers["x-request-id"] == key
    await until(ledger, key, "closed")
    assert line_of(mesh, key).startswith("OK ")


def line_of(mesh: RunningMesh, request_id: str) -> str:
    """Return how the engine's call ended, by the access log, which is written a moment later."""
    method = "/pyserve.llm.v1.Engine/Generate"
    pattern = re.compile(rf"pyserve\.access \[{request_id}\]: {method} (.*)")
    wait_until(lambda: pattern.search(mesh.output()) is not None)
    (line,) = pattern.findall(mesh.output())
    return str(line)


async def test_a_deadline_stops_the_engine(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        headers = {"x-request-timeout-seconds": "0.5"}
        response = await client.post(CHAT, json=chat(f"hold {key}"), headers=headers)
    assert response.status_code == 408, response.text
    await until(ledger, key, "closed")


def test_http_1_0_gets_a_body_without_chunks(base_url: str) -> None:
    host, _, port = base_url.removeprefix("http://").partition(":")
    body = json.dumps(chat("one two", stream=True)).encode()
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        head = f"POST {CHAT} HTTP/1.0\r\nhost: h\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    told, _, events = answer.partition("\r\n\r\n")
    assert " 200 " in told.splitlines()[0]
    assert "transfer-encoding" not in told.lower()
    assert text_of(data_of(events.splitlines())) == "one two "


def test_a_client_that_asks_first_gets_100_before_its_body(base_url: str) -> None:
    host, _, port = base_url.removeprefix("http://").partition(":")
    body = json.dumps(chat("one")).encode()
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(
            f"POST {CHAT} HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\n"
            f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 200")


def test_http_2_carries_streams_side_by_side(base_url: str) -> None:
    with httpx.Client(base_url=base_url, http1=False, http2=True, timeout=PATIENCE_S) as client:
        with client.stream("POST", CHAT, json=chat("one two", stream=True)) as first:
            assert content_of(client.post(CHAT, json=chat("three"))) == "three "
            assert text_of(data_of(first.iter_lines())) == "one two "
        assert first.http_version == "HTTP/2"


def test_pages_of_other_origins_may_ask(client: httpx.Client) -> None:
    origin = {"origin": "https://page.example"}
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "x-key"}
    preflight = client.options(CHAT, headers=origin | wanted)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-headers"] == "x-key"
    for response in (
        client.post(CHAT, json=chat("one"), headers=origin),
        client.post(CHAT, json=chat("one", "delta"), headers=origin),
        client.get("/v1/models", headers=origin),
    ):
        assert response.headers["access-control-allow-origin"] == "*"
    options = client.options(CHAT)
    assert (options.status_code, options.headers["allow"]) == (204, "POST")


def test_what_no_api_has_goes_to_the_applications_own_handler(client: httpx.Client) -> None:
    assert client.get("/").text == "a page"
    assert client.get("/v1/chat").text == "a page"
    assert client.get("/solo/nothing").status_code == 404


async def test_places_come_back_after_clients_that_leave_at_any_stage(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        for turns in range(100):
            body = chat(f"hold {key}", stream=turns % 2 == 0)
            request = asyncio.create_task(client.post(CHAT, json=body))
            for _ in range(turns):
                await asyncio.sleep(0)
            request.cancel()
            await asyncio.wait({request})
        answers = [client.post(CHAT, json=chat("one")) for _ in range(4 * PLACES)]
        assert {content_of(each) for each in await asyncio.gather(*answers)} == {"one "}

    async def are_closed() -> bool:
        await ledger.note.remote(key, "asked")
        happened = await until(ledger, key, "asked")
        # The note of the beginning may be cancelled with the request.
        return happened.count("closed") >= happened.count("began") > 0

    await eventually(are_closed)


async def test_calls_wait_for_a_place_and_get_one(
    base_url: str, ledger: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as client:
        waiting = [
            asyncio.create_task(client.post(CHAT, json=chat(f"wait {key} done", "gamma")))
            for _ in range(20)
        ]
        await ledger.note.remote(key, "go on")
        assert {content_of(await each) for each in waiting} == {"done "}


@pytest.mark.parity("G-86")
def test_the_status_names_the_prefix_of_an_engine(base_url: str) -> None:
    prefixes = {name: each.route_prefix for name, each in pyserve.status().applications.items()}
    assert prefixes == {"default": "/", "solo": "/solo"}
