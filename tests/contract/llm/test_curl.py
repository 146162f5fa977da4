"""curl against the doors of a simulated engine: what goes over the wire."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import subprocess
from typing import Any

import pytest

from tests.contract.foreign import curl as curls
from tests.contract.foreign.curl import curl

pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.parity("G-86")]

if reason := curls.why_not():
    pytest.skip(reason, allow_module_level=True)

JSON = ("--header", "content-type: application/json")
CHAT = "/v1/chat/completions"
IDLE = 200
_LINE_TIMEOUT_S = 10.0


def body(text: str = "a b c", **fields: Any) -> str:
    messages = [{"role": "user", "content": "hi"}]
    said = {"simulated": {"text": text}}
    return json.dumps({"model": "simulated", "messages": messages, **said, **fields})


@pytest.fixture(params=["--http1.1", "--http2-prior-knowledge"])
def http(request: pytest.FixtureRequest) -> str:
    """The option for a version of HTTP."""
    if request.param.startswith("--http2") and not curls.speaks_http2():
        pytest.skip("this curl has no HTTP/2")
    option: str = request.param
    return option


def test_a_stream_is_lines_of_data_with_empty_ones_between(base_url: str, http: str):
    sent = body(stream=True, stream_options={"include_usage": True})
    answer = curl(base_url + CHAT, http, "-N", *JSON, "--data", sent)
    assert (0, 200) == (answer.exit_code, answer.status), answer
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in answer.headers
    text = answer.body.decode()
    assert re.fullmatch(r"(?:(?:data: [^\n]+|:[^\n]*)\n\n)+", text), text
    *chunks, end = re.findall(r"data: ([^\n]+)", text)
    assert "[DONE]" == end
    assert all("chat.completion.chunk" == json.loads(each)["object"] for each in chunks)


def test_events_of_other_doors_are_named(base_url: str, http: str):
    for path, last, sent in [
        ("/v1/messages", "message_stop", body(stream=True, max_tokens=20)),
        ("/v1/responses", "response.completed", body(stream=True, input="hi", messages=None)),
    ]:
        answer = curl(base_url + path, http, "-N", *JSON, "--data", sent)
        events = re.findall(r"event: ([^\n]+)\ndata: ([^\n]+)\n\n", answer.body.decode())
        assert last == events[-1][0], answer
        assert all(name == json.loads(data)["type"] for name, data in events)
        assert b"[DONE]" not in answer.body


def test_events_come_as_they_are_made(base_url: str, http: str):
    sent = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True})
    command = ["curl", "--silent", "-N", http, *JSON, "--data", sent]
    # Ten thousand tokens: it would last for forty seconds.
    url = f"{base_url}/narrow{CHAT}"
    with subprocess.Popen([*command, url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], _LINE_TIMEOUT_S)[0]
            assert process.stdout.readline().startswith(b"data: ")
        finally:
            process.kill()


def test_idle_connections_keep_nobody_out(base_url: str):
    host, port = base_url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as idle:
        for _ in range(IDLE):
            idle.enter_context(socket.create_connection((host, int(port)), timeout=5))
        answer = curl(base_url + CHAT, "--http1.1", *JSON, "--data", body())
        assert "a b c" == answer.json()["choices"][0]["message"]["content"]


def test_http_1_0_has_no_chunks(base_url: str):
    answer = curl(base_url + CHAT, "--http1.0", "-N", *JSON, "--data", body(stream=True))
    assert (0, 200) == (answer.exit_code, answer.status), answer
    assert "transfer-encoding" not in answer.headers
    assert answer.body.startswith(b"data: ")
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_a_connection_is_kept_after_a_stream(base_url: str):
    command = ["curl", "--silent", "--http1.1", "--write-out", "%{http_code} %{num_connects}\n"]
    for _ in range(3):
        command += ["--output", "/dev/null", base_url + CHAT]
    command += [*JSON, "--data", body(stream=True)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert ["200 1", "200 0", "200 0"] == ended.stdout.splitlines()


def test_preflights_and_slashes_are_answered(base_url: str, http: str):
    origin = ("--header", "Origin: http://example.com")
    wants = ("--header", "Access-Control-Request-Method: POST")
    answer = curl(base_url + CHAT, http, "--request", "OPTIONS", *origin, *wants)
    assert answer.status in {200, 204}, answer
    slash = curl(base_url + CHAT + "/", http, "--location", *JSON, "--data", body())
    assert 200 == slash.status, slash
    assert "a b c" == slash.json()["choices"][0]["message"]["content"]


def test_errors_are_of_the_shape_of_their_api(base_url: str, http: str):
    broken = ("--data", '{"model":')
    openai = curl(base_url + CHAT, http, *JSON, *broken)
    assert (400, "invalid_request_error") == (openai.status, openai.json()["error"]["type"])
    anthropic = curl(f"{base_url}/v1/messages", http, *JSON, *broken)
    assert (400, "error") == (anthropic.status, anthropic.json()["type"])
    assert "invalid_request_error" == anthropic.json()["error"]["type"]
    # Without a body: curl 7.88 does not show an HTTP/2 answer that comes before its upload ends.
    missing = curl(f"{base_url}/v1/no/such/door", http)
    assert 404 == missing.status
