"""The simulated engine: what it answers, and when."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pyserve.llm import (
    ContextLengthExceeded,
    EmbedRequest,
    EngineOverloaded,
    GenerateRequest,
    InvalidRequest,
    ScoreRequest,
    SimulatedEngine,
)
from pyserve.llm.results import BlocksRemoved, BlocksStored
from pyserve.llm.simulated.driver import SimulatedFailure
from pyserve.llm.simulated.language import block_hashes, text_of, tokens_of
from pyserve.llm.simulated.scheduler import Rates
from pyserve.llm.v1 import engine_pb2 as pb
from tests.support.virtual_time import use_virtual_time

RATES = Rates(prefill_tokens_per_s=1000.0, step_s=0.01, step_s_per_request=0.0, max_running=4)


@pytest.fixture
async def engine(monkeypatch) -> SimulatedEngine:
    use_virtual_time(monkeypatch)
    return SimulatedEngine(model="m", rates=RATES, tokens=8, max_waiting=2)


def _chat(*texts, tools=(), choice=None, **fields):
    said = [pb.ChatMessage(role="user", content=[pb.ContentPart(text=text)]) for text in texts]
    chat = pb.Chat(messages=said, tools=[pb.Tool(name=name) for name in tools])
    if choice is not None:
        chat.tool_choice.mode = choice
    return pb.GenerateRequest(chat=chat, **{"stream": True, **fields})


async def _all(engine, request):
    return [each async for each in engine.Generate(request, None)]


def _text(found):
    return b"".join(each.text.encode() + each.text_bytes for each in found).decode()


async def test_a_token_comes_with_each_step(engine):
    loop = asyncio.get_running_loop()
    begun, times = loop.time(), []
    async for each in engine.Generate(_chat("hello"), None):
        times.append(round(loop.time() - begun, 6))
        last = each
    prompt = len(tokens_of("user: hello\nassistant: "))
    first = round(0.01 + prompt / 1000, 6)
    assert [round(first + 0.01 * number, 6) for number in range(8)] == times
    assert (pb.FINISH_REASON_STOP, 8, prompt) == (
        last.finish_reason,
        last.usage.completion_tokens,
        last.usage.prompt_tokens,
    )


async def test_the_same_request_has_the_same_answer(engine):
    fixed = {"sampling": pb.Sampling(seed=3)}
    first = _text(await _all(engine, _chat("hello", **fixed)))
    assert first == _text(await _all(engine, _chat("hello", **fixed)))
    assert first != _text(await _all(engine, _chat("hello", sampling=pb.Sampling(seed=4))))
    assert first != _text(await _all(engine, _chat("good day", **fixed)))


async def test_an_answer_that_is_not_streamed_is_one_delta(engine):
    fixed = {"sampling": pb.Sampling(seed=3)}
    (found,) = await _all(engine, _chat("hello", stream=False, **fixed))
    assert _text([found]) == _text(await _all(engine, _chat("hello", **fixed)))
    assert 8 == found.usage.completion_tokens


async def test_max_tokens_cuts_an_answer(engine):
    found = await _all(engine, _chat("hello", max_tokens=3))
    assert pb.FINISH_REASON_LENGTH == found[-1].finish_reason
    assert 3 == found[-1].usage.completion_tokens


async def test_a_request_says_how_long_its_answer_is_or_what_it_is(engine):
    other = json.dumps({"simulated": {"tokens": 20}})
    assert 20 == (await _all(engine, _chat("x", other_json=other)))[-1].usage.completion_tokens
    other = json.dumps({"simulated": {"text": "größer 🦀 als"}})
    found = await _all(engine, _chat("x", other_json=other))
    assert "größer 🦀 als" == _text(found)
    assert any(each.text_bytes for each in found)


@pytest.mark.parametrize(
    "wishes", [{"unknown": 1}, {"tokens": "3"}, {"tokens": True}, [1], {"text": 3}]
)
async def test_a_wrong_wish_is_refused(engine, wishes):
    with pytest.raises(InvalidRequest, match="simulated"):
        await _all(engine, _chat("x", other_json=json.dumps({"simulated": wishes})))


async def test_an_engine_fails_when_it_is_asked_to_and_goes_on(engine):
    other = json.dumps({"simulated": {"fail_after": 2}})
    found: list[Any] = []

    async def collect():
        async for each in engine.Generate(_chat("x", other_json=other), None):
            found.append(each)  # noqa: PERF401 (what comes before the failure counts)

    with pytest.raises(SimulatedFailure):
        await collect()
    assert 2 == len(found)
    assert 0 == (await engine.load()).running_requests


@pytest.mark.parametrize(
    ("text", "choice", "called"),
    [
        ("what is the weather", None, ["weather"]),
        ("hello", None, []),
        ("hello", pb.ToolChoice.MODE_REQUIRED, ["weather"]),
        ("weather and time", None, ["weather", "time"]),
        ("weather", pb.ToolChoice.MODE_NONE, []),
    ],
)
async def test_tools_are_called_where_they_are_named_or_demanded(engine, text, choice, called):
    found = await _all(engine, _chat(text, tools=["weather", "time"], choice=choice))
    calls = [call for each in found for call in each.tool_calls]
    assert called == [call.name for call in calls if call.name]
    for number in range(len(called)):
        pieces = [call.arguments for call in calls if call.index == number]
        assert {} == json.loads("".join(pieces))
    expected = pb.FINISH_REASON_TOOL_CALLS if called else pb.FINISH_REASON_STOP
    assert [expected] == [each.finish_reason for each in found if each.finish_reason]


async def test_reasoning_comes_before_the_text(engine):
    request = _chat("x")
    request.chat.reasoning_effort = "low"
    found = await _all(engine, request)
    kinds = ["reasoning" if each.reasoning else "text" for each in found]
    assert ["reasoning"] * 8 + ["text"] * 8 == kinds
    assert 8 == found[-1].usage.reasoning_tokens


async def test_each_token_has_its_log_probability_and_alternatives(engine):
    found = await _all(engine, _chat("x", logprobs=True, top_logprobs=2))
    for each in found:
        (logprob,) = each.logprobs
        assert each.text == logprob.token
        assert 2 == len(logprob.top)
        assert logprob.top[0].logprob >= logprob.top[1].logprob


async def test_json_is_answered_where_it_is_demanded(engine):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    form = pb.ResponseFormat(kind="KIND_JSON_SCHEMA", schema_json=json.dumps(schema))
    assert {"n": 1} == json.loads(_text(await _all(engine, _chat("x", response_format=form))))
    form = pb.ResponseFormat(kind="KIND_JSON_OBJECT")
    assert isinstance(json.loads(_text(await _all(engine, _chat("x", response_format=form)))), dict)


async def test_a_turn_finds_the_turns_before_it_in_the_cache(engine):
    first = await _all(engine, _chat("hello " * 20, sampling=pb.Sampling(temperature=0)))
    request = _chat("hello " * 20)
    answer = pb.ChatMessage(role="assistant", content=[pb.ContentPart(text=_text(first))])
    request.chat.messages.append(answer)
    request.chat.messages.add(role="user", content=[pb.ContentPart(text="and?")])
    found = await _all(engine, request)
    known = first[-1].usage.prompt_tokens + first[-1].usage.completion_tokens - 1
    assert known // 16 * 16 == found[-1].usage.cached_tokens


async def test_a_prompt_that_is_too_long_is_refused():
    engine = SimulatedEngine(model="m", max_model_len=20)
    with pytest.raises(ContextLengthExceeded, match="context length is 20"):
        await _all(engine, _chat("a" * 100))
    with pytest.raises(InvalidRequest, match=r"max_tokens: \d+ tokens"):
        await _all(engine, _chat("a", sampling=pb.Sampling(ignore_eos=True), max_tokens=90))


async def _filled(engine):
    """Let four requests run and two wait; return the calls."""
    long = json.dumps({"simulated": {"tokens": 500}})
    held = [engine.Generate(_chat(f"{number}", other_json=long), None) for number in range(6)]
    # One that comes while a step is made is admitted after it.
    for each in held[:4]:
        await anext(each)
    waiting = [asyncio.create_task(anext(each)) for each in held[4:]]
    await asyncio.sleep(0)
    return held, waiting


async def test_beyond_the_queue_requests_are_refused(engine):
    held, waiting = await _filled(engine)
    load = await engine.load()
    assert (4, 2) == (load.running_requests, load.waiting_requests)
    with pytest.raises(EngineOverloaded, match="2 requests wait"):
        await _all(engine, _chat("x"))
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
    assert 0 == (await engine.load()).waiting_requests
    for each in held:
        await each.aclose()
    load = await engine.load()
    assert (0, 0, 0) == (load.running_requests, load.waiting_requests, load.running_tokens)


async def test_those_who_wait_come_when_others_have_ended(engine):
    held, waiting = await _filled(engine)
    assert not any(each.done() for each in waiting)
    await held[0].aclose()
    await waiting[0]
    assert not waiting[1].done()
    assert 1 == (await engine.load()).waiting_requests
    await held[1].aclose()
    await waiting[1]
    for each in held:
        await each.aclose()


async def test_readers_of_the_cache_get_all_that_is_there_and_then_what_changes(engine):
    await _all(engine, _chat("hello " * 20))
    events = engine.CacheEvents(pb.CacheEventsRequest(), None)
    first = await anext(events)
    prompt = tokens_of("user: " + "hello " * 20 + "\nassistant: ")
    stored = [each for event in first.events for each in event.stored.hashes]
    assert block_hashes(prompt, 16) == stored[: len(prompt) // 16]
    reading = asyncio.create_task(anext(events))
    await _all(engine, _chat("other words " * 20))
    second = await reading
    assert (1, 2) == (first.number, second.number)
    assert all(event.HasField("stored") for event in second.events)
    await events.aclose()


async def test_a_reader_that_is_slow_begins_anew(engine, monkeypatch):
    monkeypatch.setattr("pyserve.llm.simulated.driver._UNREAD_MAX", 1)
    events = engine.cache_events()
    assert [] == await anext(events)
    for number in range(3):
        await _all(engine, _chat(f"{number} " * 40))
    held: set[bytes] = set()
    async for batch in events:
        for event in batch:
            if isinstance(event, BlocksStored):
                held |= set(event.hashes)
            elif isinstance(event, BlocksRemoved):
                held -= set(event.hashes)
            else:
                held = set()
        if held == set(engine._driver.scheduler.pool._cached):
            break
    await events.aclose()


async def test_embeddings_and_scores_go_by_shared_words(engine):
    inputs = [pb.Prompt(text="a cat"), pb.Prompt(token_ids=pb.TokenIds(ids=tokens_of("a cat")))]
    found = await engine.embed(EmbedRequest(pb.EmbedRequest(inputs=inputs, dimensions=16)))
    assert found.values[0] == found.values[1]
    assert 16 == len(found.values[0])
    documents = ["the cat sat", "stocks fell"]
    request = ScoreRequest(pb.ScoreRequest(queries=["cat"], documents=documents))
    near, far = (await engine.score(request)).values
    assert near > far


async def test_a_chat_is_tokenized_as_it_is_read(engine):
    request = pb.TokenizeRequest(chat=_chat("hi").chat, return_token_strs=True)
    found = await engine.Tokenize(request, None)
    assert "user: hi\nassistant: " == text_of(found.token_ids) == "".join(found.token_strs)
    back = await engine.Detokenize(pb.DetokenizeRequest(token_ids=found.token_ids), None)
    assert "user: hi\nassistant: " == back.text


async def test_prompts_of_token_ids_are_taken_as_they_are(engine):
    request = GenerateRequest(
        pb.GenerateRequest(
            prompts=pb.Prompts(prompts=[pb.Prompt(token_ids=pb.TokenIds(ids=[7, 8, 9]))]),
        ),
        "m",
    )
    found = [each async for each in engine.generate(request)]
    assert 3 == found[-1].usage.prompt_tokens


@pytest.mark.parametrize(
    "fields",
    [
        {"other_json": '{"simulated": {"tokens": 1000000000000}}'},
        {"other_json": '{"simulated": {"reasoning_tokens": 1000000000000}}'},
        {"sampling": pb.Sampling(ignore_eos=True), "max_tokens": 2**32 - 1},
    ],
)
async def test_an_answer_that_has_no_room_is_not_made_first(engine, fields):
    with pytest.raises(InvalidRequest, match="more than"):
        await _all(engine, _chat("hello", **fields))


async def test_the_largest_seed_has_one_after_it(engine):
    found = await _all(engine, _chat("hello", n=2, sampling=pb.Sampling(seed=2**63 - 1)))
    assert {0, 1} == {each.index for each in found}


async def test_more_dimensions_than_any_model_has_are_refused(engine):
    request = pb.EmbedRequest(inputs=[pb.Prompt(text="a")], dimensions=2**32 - 1)
    with pytest.raises(InvalidRequest, match="dimensions"):
        await engine.embed(EmbedRequest(request))


@pytest.mark.parametrize("parameters", [{"properties": 7}, {"properties": {"a": 7}}, {"enum": 7}])
async def test_parameters_that_are_no_schema_are_as_good_as_none(engine, parameters):
    request = _chat("hello", tools=["f"], choice=pb.ToolChoice.MODE_REQUIRED)
    request.chat.tools[0].parameters_json = json.dumps(parameters)
    found = await _all(engine, request)
    json.loads("".join(call.arguments for each in found for call in each.tool_calls))
