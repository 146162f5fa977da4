"""Programs that are asked over HTTP: by the ingress itself, and by routes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import pyserve as serve
from tests.mesh.llm_ray import programs
from tests.mesh.llm_ray.conftest import Run
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]
HELLO = [{"role": "user", "content": "Hello, world!"}]


def ask(client: httpx.Client, url: str, **fields) -> httpx.Response:
    body = {"model": "qwen-0.5b", "messages": HELLO} | fields
    return client.post(f"{url}/v1/chat/completions", json=body)


def text_of(response: httpx.Response) -> str:
    assert 200 == response.status_code, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert "[DONE]" == events.pop()
    chunks = [json.loads(each) for each in events]
    return "".join(c["delta"].get("content") or "" for each in chunks for c in each["choices"])


@pytest.mark.parametrize("program", ["one_model", "two_models", "with_another_chat", "by_hand"])
def test_openais_api_is_there(run: Run, client: httpx.Client, program: str):
    _, url = run(getattr(programs, program)())

    whole = ask(client, url, temperature=0)
    streamed = ask(client, url, temperature=0, stream=True)

    assert 200 == whole.status_code, whole.text
    message = whole.json()["choices"][0]["message"]
    assert ("assistant", "qwen-0.5b") == (message["role"], whole.json()["model"])
    assert message["content"] == text_of(streamed)
    assert ("!!" if program == "with_another_chat" else None) == whole.headers.get("x-mark")
    expected = ["qwen-0.5b"] if program == "one_model" else ["qwen-0.5b", "qwen-1.5b"]
    models = client.get(f"{url}/v1/models").json()
    assert expected == sorted(each["id"] for each in models["data"])
    unknown = ask(client, url, model="qwen-7b")
    assert (404, "model") == (unknown.status_code, unknown.json()["error"]["param"])
    wrong = client.post(f"{url}/v1/chat/completions", json={"model": "qwen-0.5b"})
    assert (400, "invalid_request_error") == (wrong.status_code, wrong.json()["error"]["type"])


@pytest.mark.parametrize("program", ["two_models", "with_another_chat"])
def test_the_other_routes_are_there(run: Run, client: httpx.Client, program: str):
    _, url = run(getattr(programs, program)())

    def post(path: str, **body) -> dict[str, Any]:
        response = client.post(f"{url}{path}", json={"model": "qwen-1.5b"} | body)
        assert 200 == response.status_code, response.text
        found: dict[str, Any] = response.json()
        return found

    completion = post("/v1/completions", prompt="Hello", max_tokens=2)
    assert 2 == completion["usage"]["completion_tokens"]
    assert 3 == len(post("/v1/embeddings", input="a", dimensions=3)["data"][0]["embedding"])
    tokens = post("/tokenize", prompt="Hello, world!")
    assert tokens["count"] == len(tokens["tokens"])
    assert post("/detokenize", tokens=tokens["tokens"])["prompt"]
    assert 2 == len(post("/v1/score", text_1="a", text_2=["a", "b"])["data"])
    card = client.get(f"{url}/v1/models/qwen-1.5b").json()
    assert ("qwen-1.5b", "model") == (card["id"], card["object"])


def test_a_route_of_ones_own_stands_beside_them(run: Run, client: httpx.Client):
    _, url = run(programs.with_a_route())

    assert {"models": 1} == client.get(f"{url}/count").json()
    assert 200 == ask(client, url).status_code


def test_adapters_are_named_after_their_model(run: Run, client: httpx.Client, tmp_path: Path):
    for name in ("legal", "poems"):
        (tmp_path / name).mkdir()
    _, url = run(programs.with_adapters(str(tmp_path)))

    def content(model: str) -> str:
        response = ask(client, url, model=model)
        assert 200 == response.status_code, response.text
        return str(response.json()["choices"][0]["message"]["content"])

    # There is room for one, so the last one makes room for the first again.
    asked = ["m:legal", "m:legal", "m:poems", "m:legal", "m"]
    assert ["m+legal", "m+legal", "m+poems", "m+legal", "m+"] == [*map(content, asked)]
    listed = {each["id"] for each in client.get(f"{url}/v1/models").json()["data"]}
    assert {"m", "m:legal", "m:poems"} == listed
    assert 404 == ask(client, url, model="m:none").status_code
    assert 404 == ask(client, url, model="m:../legal").status_code


def test_engines_are_controlled_at_all_replicas(run: Run, client: httpx.Client):
    _, url = run(programs.controlled())
    asked = {"model": "m"}

    assert 200 == client.post(f"{url}/sleep", json=asked | {"options": {"level": 1}}).status_code
    assert {"is_sleeping": True} == client.get(f"{url}/is_sleeping", params=asked).json()
    assert 200 == client.post(f"{url}/wakeup", json=asked).status_code
    assert {"is_sleeping": False} == client.get(f"{url}/is_sleeping", params=asked).json()
    assert {"is_paused": False} == client.get(f"{url}/is_paused", params=asked).json()
    found = client.post(f"{url}/collective_rpc", json=asked | {"method": "load", "args": [1]})
    assert [["load(1,){}"]] * 2 == [each["worker_results"] for each in found.json()["results"]]
    lacking = client.post(f"{url}/pause", json=asked)
    assert 501 == lacking.status_code
    assert "Controlled has no method 'pause'" in lacking.json()["error"]["message"]
    assert 404 == client.post(f"{url}/sleep", json={"model": "n"}).status_code


def test_a_client_that_leaves_stops_the_engine_of_a_route(run: Run, client: httpx.Client):
    slow = programs.config(
        engine_kwargs={"rates": {"step_s": 0.01}, "tokens": 30_000, "max_model_len": 65_536}
    )
    _, url = run(
        programs.build_openai_app(
            {
                "llm_configs": [slow],
                "ingress_cls_config": {"ingress_cls": programs.Shouting},
            }
        )
    )
    engine = serve.get_deployment_handle("LLMServer-qwen-0_5b", "llm")

    def running() -> int:
        load = engine.load.remote().result(timeout_s=10)
        return int(load.running_requests + load.waiting_requests)

    body = {"messages": HELLO, "stream": True}
    with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()  # What is dropped closes the response.
        assert next(lines).startswith("data: ")
        assert 1 == running()

    wait_until(lambda: running() == 0, 10)
