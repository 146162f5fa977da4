"""An engine behind a URL: what is passed on, what fails, and the server as a child."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

import pyserve
from pyserve.errors import OptionError
from pyserve.llm import InvalidRequest, Model, OpenAIUrl
from pyserve.llm.engines.child import Child, ChildFailed
from pyserve.llm.engines.openai_json import Garbage
from pyserve.llm.v1 import engine_pb2 as pb
from tests.support.openai_server import OpenAIServer
from tests.support.waiting import eventually, wait_until

NO_CONTEXT: Any = None
SERVER = Path(__file__).parents[2] / "support" / "openai_server.py"


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    server = OpenAIServer()
    server.port = await server.start()  # type: ignore[attr-defined]
    yield server
    await server.close()
    await eventually(lambda: server.connections == server.ended)


@pytest.fixture
async def engine(server: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIUrl]:
    monkeypatch.setenv("THE_KEY", "secret")
    engine = OpenAIUrl(
        f"http://127.0.0.1:{server.port}/v1",
        models={"mine": "there"},
        api_key_env="THE_KEY",
        headers={"x-team": "blue"},
    )
    await engine.start()
    yield engine
    await engine.aclose()


def _chat(text: str, **fields: Any) -> pb.GenerateRequest:
    said = pb.ChatMessage(role="user", content=[pb.ContentPart(text=text)])
    return pb.GenerateRequest(chat=pb.Chat(messages=[said]), model="mine", **fields)


async def _all(engine: OpenAIUrl, request: pb.GenerateRequest) -> list[pb.Delta]:
    return [each async for each in engine.Generate(request, NO_CONTEXT)]


async def test_a_request_is_passed_on_and_its_answer_comes_back(engine: OpenAIUrl, server: Any):
    found = await _all(engine, _chat("words 3", max_tokens=9))
    assert "w0 w1 w2 " == "".join(each.text for each in found)
    assert (7, 5) == (found[-2].usage.prompt_tokens, found[-2].usage.completion_tokens)
    assert pb.FINISH_REASON_STOP == found[-1].finish_reason
    target, headers, body = server.requests[-1]
    assert ("/v1/chat/completions", "Bearer secret", "blue") == (
        target,
        headers["authorization"],
        headers["x-team"],
    )
    assert ("there", 9, True) == (body["model"], body["max_tokens"], body["stream"])


async def test_the_models_are_known_by_the_names_given(engine: OpenAIUrl):
    expected = Model(id="mine", root="there", max_model_len=512, tasks=("generate", "chat"))
    assert [expected] == await engine.models()


async def test_without_names_the_servers_own_are_used(server: Any):
    engine = OpenAIUrl(f"http://127.0.0.1:{server.port}/v1")
    await engine.start()
    assert ["there"] == [each.id for each in await engine.models()]
    await engine.aclose()


async def test_choices_are_made_by_the_server(engine: OpenAIUrl, server: Any):
    found = await _all(engine, _chat("words 2", n=3))
    assert [0, 1, 2] * 2 == [each.index for each in found if each.text]
    assert 3 == server.requests[-1][2]["n"]
    assert 2 == len(server.requests)


async def test_a_plain_prompt_is_a_completion(engine: OpenAIUrl, server: Any):
    prompts = pb.Prompts(prompts=[pb.Prompt(text="words 2")])
    found = await _all(engine, pb.GenerateRequest(prompts=prompts, model="mine"))
    assert "w0 w1 " == "".join(each.text for each in found)
    assert "/v1/completions" == server.requests[-1][0]


async def test_a_connection_serves_one_request_after_the_other(engine: OpenAIUrl, server: Any):
    for _ in range(5):
        await _all(engine, _chat("words 1"))
    assert 1 == server.connections


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("status 400", "INVALID_ARGUMENT"),
        ("status 404", "NOT_FOUND"),
        ("status 429", "RESOURCE_EXHAUSTED"),
        ("status 500", "INTERNAL"),
        ("status 503", "UNAVAILABLE"),
        ("cut", "UNAVAILABLE"),
        ("garbage", "INTERNAL"),
        ("error", "INTERNAL"),
    ],
)
async def test_a_failure_is_told_as_what_it_is(engine: OpenAIUrl, text: str, code: str):
    with pytest.raises(pyserve.Abort) as caught:
        await _all(engine, _chat(text))
    assert StatusCode[code] is caught.value.code
    # The next one is not affected.
    assert "w0 " == (await _all(engine, _chat("words 1")))[0].text


async def test_an_answer_that_makes_no_sense_names_the_engine(engine: OpenAIUrl):
    with pytest.raises(Garbage, match=r"the engine at http://127\.0\.0\.1:\d+/v1 answered"):
        await _all(engine, _chat("garbage"))


async def test_a_call_that_is_closed_closes_its_connection(engine: OpenAIUrl, server: Any):
    stream = engine.Generate(_chat("wait"), NO_CONTEXT)
    assert "w0 " == (await anext(stream)).text
    assert 1 == server.open
    await stream.aclose()
    await eventually(lambda: server.open == 0)


async def test_a_server_that_is_not_there_is_unavailable(engine: OpenAIUrl, server: Any):
    await server.close()
    await engine._client.close()
    with pytest.raises(pyserve.Abort, match="cannot be reached at") as caught:
        await _all(engine, _chat("words 1"))
    assert StatusCode.UNAVAILABLE is caught.value.code


async def test_embeddings_are_in_the_order_of_the_inputs(engine: OpenAIUrl):
    inputs = [pb.Prompt(text="abc"), pb.Prompt(text="d")]
    found = await engine.Embed(pb.EmbedRequest(inputs=inputs, model="mine"), NO_CONTEXT)
    assert [[3.0], [1.0]] == [list(each.values) for each in found.embeddings]
    assert 3 == found.usage.prompt_tokens


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs a base_url, or the command"),
        ({"base_url": "http://x", "api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY has no API key"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, text: str):
    with pytest.raises(OptionError, match=text):
        OpenAIUrl(**arguments)


async def test_a_url_that_is_none_is_refused():
    with pytest.raises(OptionError, match="write one such as"):
        await OpenAIUrl("localhost:8000", models=["a"]).start()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
async def test_a_server_is_started_as_a_child_and_ends_with_the_engine(tmp_path: Path):
    command = [sys.executable, str(SERVER), "{port}", str(tmp_path / "pid")]
    engine = OpenAIUrl(command=command, models=["there"])
    await engine.start()
    pid = int((tmp_path / "pid").read_text())
    request = _chat("words 2")
    request.model = "there"
    assert "w0 " == (await _all(engine, request))[0].text
    await engine.check_health()
    await engine.aclose()
    assert not _alive(pid)
    with pytest.raises(ChildFailed, match="ended with exit status"):
        await engine.check_health()


@pytest.mark.slow
async def test_a_server_that_ends_at_once_is_reported_with_its_status():
    engine = OpenAIUrl(command=[sys.executable, "-c", "raise SystemExit(7)"])
    with pytest.raises(ChildFailed, match="ended with exit status 7"):
        await engine.start()


@pytest.mark.slow
async def test_a_server_that_never_answers_is_given_up():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    engine = OpenAIUrl(command=command, startup_timeout_s=0.5)
    with pytest.raises(ChildFailed, match=r"has not answered at port \d+ within 0.5 s"):
        await engine.start()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["the replica", "the watcher"])
def test_no_server_outlives_a_kill(tmp_path: Path, victim: str):
    program = (
        "import sys, time\n"
        "from pyserve.llm.engines.child import Child\n"
        "child = Child(sys.argv[1:], {})\n"
        "print(child._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    pid_file = tmp_path / "pid"
    server = [sys.executable, str(SERVER), "{port}", str(pid_file)]
    replica = subprocess.Popen(
        [sys.executable, "-c", program, *server], stdout=subprocess.PIPE, text=True
    )
    assert replica.stdout is not None
    try:
        watcher = int(replica.stdout.readline())
        wait_until(lambda: pid_file.exists() and pid_file.read_text())
        pid = int(pid_file.read_text())
        os.kill(replica.pid if victim == "the replica" else watcher, 9)
        wait_until(lambda: not _alive(pid))
    finally:
        replica.kill()
        replica.wait()
        replica.stdout.close()


async def test_what_a_child_leaves_behind_ends_with_it(tmp_path: Path):
    pid_file = tmp_path / "grandchild"
    script = f"sleep 600 & echo $! > {pid_file}; wait"
    child = Child(["sh", "-c", script], {})
    await eventually(lambda: pid_file.exists() and pid_file.read_text().strip())
    await child.close()
    await eventually(lambda: not _alive(int(pid_file.read_text())))


async def test_an_error_names_the_field_that_the_server_names(engine: OpenAIUrl):
    with pytest.raises(InvalidRequest) as caught:
        await _all(engine, _chat("status 400"))
    assert ("messages", "messages: this is 400") == (caught.value.param, caught.value.details)


async def test_closing_waits_for_nobody(engine: OpenAIUrl):
    async with asyncio.timeout(5):
        await engine.aclose()
