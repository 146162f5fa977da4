"""The package ``openai`` against the doors of a simulated engine."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]
openai = pytest.importorskip("openai", reason="openai is not installed: make llm-client-packages")

MODEL = "simulated"
HELLO: Any = [{"role": "user", "content": "hello there"}]
TIMEOUT_S = 30
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
TIME: Any = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}


def says(text: str, **others: Any) -> dict[str, Any]:
    """Return the field by which a request says what is answered."""
    return {"simulated": {"text": text, **others}}


@pytest.fixture
def client(base_url: str) -> Iterator[Any]:
    http = openai.DefaultHttpxClient(trust_env=False)
    settings = {"api_key": "none", "max_retries": 0, "timeout": TIMEOUT_S, "http_client": http}
    with openai.OpenAI(base_url=f"{base_url}/v1", **settings) as client:
        yield client


@pytest.fixture
async def aclient(base_url: str) -> AsyncIterator[Any]:
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    settings = {"api_key": "none", "max_retries": 0, "timeout": TIMEOUT_S, "http_client": http}
    async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", **settings) as client:
        yield client


# --- models ---------------------------------------------------------------------------------


def test_models_are_listed_and_described(client: Any):
    assert [MODEL] == [each.id for each in client.models.list()]
    assert "model" == client.models.retrieve(MODEL).object
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert "model_not_found" == caught.value.code


# --- chat -----------------------------------------------------------------------------------


def chat(client: Any, **fields: Any) -> Any:
    return client.chat.completions.create(model=MODEL, **{"messages": HELLO, **fields})


def test_a_chat_is_answered_whole(client: Any):
    answer = chat(client, extra_body=says("a b c"))
    choice = answer.choices[0]
    assert ("chat.completion", MODEL) == (answer.object, answer.model)
    assert ("assistant", "a b c", "stop") == (
        choice.message.role,
        choice.message.content,
        choice.finish_reason,
    )
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_chat_is_streamed(client: Any):
    chunks = list(chat(client, stream=True, extra_body=says("größer 🦉 als 中文")))
    assert "größer 🦉 als 中文" == "".join(c.choices[0].delta.content or "" for c in chunks)
    assert all("�" not in (c.choices[0].delta.content or "") for c in chunks)
    assert 1 == len({(c.id, c.created, c.object, c.model) for c in chunks})
    assert ["assistant"] + [None] * (len(chunks) - 1) == [c.choices[0].delta.role for c in chunks]
    assert [None] * (len(chunks) - 1) + ["stop"] == [c.choices[0].finish_reason for c in chunks]
    assert all(c.usage is None for c in chunks)


def test_usage_comes_once_and_last_and_is_that_of_the_whole_answer(client: Any):
    options = {"include_usage": True}
    *others, last = chat(client, stream=True, stream_options=options, temperature=0)
    assert [] == last.choices
    assert all(each.usage is None for each in others)
    assert chat(client, temperature=0).usage == last.usage


def test_several_choices_have_one_id_and_their_own_ends(client: Any):
    answer = chat(client, n=3)
    assert [0, 1, 2] == [each.index for each in answer.choices]
    chunks = list(chat(client, n=3, stream=True))
    assert 1 == len({(each.id, each.created) for each in chunks})
    parts = [choice for chunk in chunks for choice in chunk.choices]
    for index in range(3):
        own = [each for each in parts if each.index == index]
        assert "assistant" == own[0].delta.role
        assert ["stop"] == [each.finish_reason for each in own if each.finish_reason]


def test_log_probabilities_are_those_that_were_asked_for(client: Any):
    assert chat(client).choices[0].logprobs is None
    found = chat(client, logprobs=True, top_logprobs=2, max_tokens=3).choices[0].logprobs
    assert [2, 2, 2] == [len(each.top_logprobs) for each in found.content]
    assert all(each.logprob <= 0 and each.token for each in found.content)
    chunks = list(chat(client, logprobs=True, max_tokens=3, stream=True))
    parts = [each.choices[0].logprobs for each in chunks]
    streamed = [each for part in parts if part for each in part.content or []]
    assert [[], [], []] == [each.top_logprobs for each in streamed]


def test_a_limit_ends_an_answer(client: Any):
    for limit in ({"max_tokens": 2}, {"max_completion_tokens": 2}):
        answer = chat(client, **limit)
        assert ("length", 2) == (answer.choices[0].finish_reason, answer.usage.completion_tokens)


def test_a_stop_sequence_is_never_shown(client: Any):
    extra = says("one two STILL three STOP four")
    assert "one two STILL three " == (
        chat(client, stop="STOP", extra_body=extra).choices[0].message.content
    )
    chunks = list(chat(client, stop=["STOP", "never"], stream=True, extra_body=extra))
    assert "one two STILL three " == "".join(c.choices[0].delta.content or "" for c in chunks)
    assert "stop" == chunks[-1].choices[0].finish_reason


def test_tools_are_called_whole_and_in_pieces(client: Any):
    asked: Any = [{"role": "user", "content": "get_weather and get_time"}]
    fields = {"messages": asked, "tools": [WEATHER, TIME]}
    choice = chat(client, **fields).choices[0]
    assert "tool_calls" == choice.finish_reason
    assert ["get_weather", "get_time"] == [c.function.name for c in choice.message.tool_calls]
    assert "city" in json.loads(choice.message.tool_calls[0].function.arguments)
    chunks = list(chat(client, stream=True, **fields))
    calls: dict[int, list[Any]] = {}
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or ():
            calls.setdefault(call.index, []).append(call)
    assert [0, 1] == list(calls)
    for (first, *others), whole in zip(calls.values(), choice.message.tool_calls, strict=True):
        assert (first.type, first.function.name) == ("function", whole.function.name)
        assert first.id
        assert all(each.id is None and each.function.name is None for each in others)
        pieces = "".join(each.function.arguments or "" for each in (first, *others))
        assert json.loads(pieces) == json.loads(whole.function.arguments)
    assert "tool_calls" == chunks[-1].choices[0].finish_reason
    one = chat(client, parallel_tool_calls=False, **fields).choices[0].message.tool_calls
    assert 1 == len(one)


def test_the_helper_of_streams_puts_tools_together(client: Any):
    fields = {"messages": HELLO, "tools": [WEATHER], "tool_choice": "required"}
    with client.chat.completions.stream(model=MODEL, **fields) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert "get_weather" == message.tool_calls[0].function.name


def test_a_conversation_with_tools_goes_on(client: Any):
    call = {"id": "call_1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    for content in ({"content": None}, {"content": ""}, {}):
        messages = [
            {"role": "developer", "content": "be short"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "tool_calls": [call], **content},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "1"}]},
        ]
        answer = chat(client, messages=messages, extra_body=says("done"))
        assert "done" == answer.choices[0].message.content


def test_structured_output_is_parsed(client: Any):
    pydantic = pytest.importorskip("pydantic")
    Place = pydantic.create_model("Place", city=(str, ...))  # noqa: N806
    answer = client.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Place)
    assert isinstance(answer.choices[0].message.parsed.city, str)
    form = {"type": "json_object"}
    assert json.loads(chat(client, response_format=form).choices[0].message.content)


def test_reasoning_is_apart_from_the_answer(client: Any):
    extra = says("yes", reasoning_tokens=4)
    message = chat(client, extra_body=extra).choices[0].message
    assert "yes" == message.content
    assert message.reasoning_content
    chunks = list(chat(client, stream=True, extra_body=extra))
    deltas = [each.choices[0].delta for each in chunks]
    assert "yes" == "".join(each.content or "" for each in deltas)
    assert "".join(getattr(each, "reasoning_content", None) or "" for each in deltas)


# --- errors ---------------------------------------------------------------------------------


def test_a_wrong_request_is_refused_with_the_name_of_what_is_wrong(client: Any):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, temperature="warm")
    assert ("temperature", "invalid_request_error") == (caught.value.param, caught.value.type)
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=HELLO)
    assert "model_not_found" == missing.value.code


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_a_status(client: Any, stream: bool):
    messages = [{"role": "user", "content": "word " * 40_000}]
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, messages=messages, stream=stream)
    assert "context_length_exceeded" == caught.value.code


def test_a_failure_in_mid_stream_is_raised_by_the_client(client: Any):
    chunks: list[Any] = []
    stream = chat(client, stream=True, extra_body={"simulated": {"fail_after": 3}})
    with pytest.raises(openai.APIError):
        chunks.extend(stream)
    assert any(each.choices[0].delta.content for each in chunks)


def test_a_timeout_of_the_client_is_its_own(client: Any):
    with pytest.raises(openai.APITimeoutError):
        chat(client.with_options(timeout=0.2), extra_body={"simulated": {"tokens": 20_000}})
    assert chat(client, extra_body=says("still here")).choices[0].message.content == "still here"


async def test_closing_a_stream_leaves_the_client_usable(aclient: Any):
    fields = {"stream": True, "extra_body": {"simulated": {"tokens": 20_000}}}
    stream = await aclient.chat.completions.create(model=MODEL, messages=HELLO, **fields)
    async for _ in stream:
        break
    await stream.close()
    answers = await asyncio.gather(
        *(aclient.chat.completions.create(model=MODEL, messages=HELLO) for _ in range(20))
    )
    assert all(each.choices[0].message.content for each in answers)


# --- completions ----------------------------------------------------------------------------


def test_completions_have_their_prompts_and_choices(client: Any):
    create = client.completions.create
    answer = create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=3, logprobs=1)
    assert ("text_completion", [0, 1, 2, 3]) == (answer.object, [c.index for c in answer.choices])
    logprobs = answer.choices[0].logprobs
    assert [3] * 3 == [
        len(each) for each in (logprobs.tokens, logprobs.token_logprobs, logprobs.text_offset)
    ]
    whole = create(model=MODEL, prompt="one", temperature=0, max_tokens=5)
    chunks = list(create(model=MODEL, prompt="one", temperature=0, max_tokens=5, stream=True))
    assert whole.choices[0].text == "".join(c.choices[0].text for c in chunks)
    assert ["length"] == [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason]
    echoed = create(model=MODEL, prompt="one", echo=True, temperature=0, max_tokens=5)
    assert "one" + whole.choices[0].text == echoed.choices[0].text


# --- embeddings -----------------------------------------------------------------------------


def test_embeddings_are_the_same_in_base64_and_in_numbers(client: Any):
    texts = ["one", "two"]
    by_itself = client.embeddings.create(model=MODEL, input=texts)  # Which asks for base64.
    numbers = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    for left, right in zip(by_itself.data, numbers.data, strict=True):
        assert left.embedding == pytest.approx(right.embedding)
    raw = client.embeddings.create(model=MODEL, input="one", encoding_format="base64", dimensions=8)
    found = raw.data[0].embedding
    values = struct.unpack("<8f", base64.b64decode(found)) if isinstance(found, str) else found
    assert 8 == len(values)
    assert by_itself.usage.prompt_tokens == by_itself.usage.total_tokens > 0


# --- responses ------------------------------------------------------------------------------


def test_a_response_is_answered_whole(client: Any):
    answer = client.responses.create(model=MODEL, input="hello", extra_body=says("a b"))
    assert ("completed", "a b") == (answer.status, answer.output_text)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    cut = client.responses.create(model=MODEL, input="hello", max_output_tokens=2)
    assert ("incomplete", "max_output_tokens") == (cut.status, cut.incomplete_details.reason)


def test_a_response_is_streamed_with_the_life_of_its_items(client: Any):
    events = list(client.responses.create(model=MODEL, input="hi", stream=True))
    assert list(range(len(events))) == [each.sequence_number for each in events]
    kinds = list(dict.fromkeys(each.type.removeprefix("response.") for each in events))
    assert [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ] == kinds
    deltas = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text


def test_a_response_calls_tools(client: Any):
    tool = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}
    fields: Any = {"model": MODEL, "input": "hi", "tools": [tool], "tool_choice": "required"}
    call = client.responses.create(**fields).output[0]
    assert ("function_call", "get_weather") == (call.type, call.name)
    events = list(client.responses.create(**fields, stream=True))
    done = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert "city" in json.loads(done[0].arguments)
    with client.responses.stream(**fields) as stream:
        for _ in stream:
            pass
        assert "get_weather" == stream.get_final_response().output[0].name
    told = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    called = call.model_dump(exclude_none=True)
    again = {"input": [{"role": "user", "content": "hi"}, called, told]}
    answer = client.responses.create(model=MODEL, **again, extra_body=says("it rains"))
    assert "it rains" == answer.output_text


def test_a_response_of_before_is_refused_by_name(client: Any):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=MODEL, input="hi", previous_response_id="resp_1")
    assert "previous_response_id" == caught.value.param
