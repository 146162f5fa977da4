"""The package ``anthropic`` against the Messages API of a simulated engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]
anthropic = pytest.importorskip(
    "anthropic", reason="anthropic is not installed: make llm-client-packages"
)

MODEL = "simulated"
HELLO: Any = [{"role": "user", "content": "hello there"}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "Tells the weather.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


@pytest.fixture
def client(base_url: str) -> Iterator[Any]:
    http = anthropic.DefaultHttpxClient(trust_env=False)
    settings = {"api_key": "none", "max_retries": 0, "timeout": 30, "http_client": http}
    with anthropic.Anthropic(base_url=base_url, **settings) as client:
        yield client


def create(client: Any, **fields: Any) -> Any:
    return client.messages.create(**{"model": MODEL, "max_tokens": 50, "messages": HELLO, **fields})


def says(text: str, **others: Any) -> dict[str, Any]:
    """Return the field by which a request says what is answered."""
    return {"simulated": {"text": text, **others}}


def test_a_message_is_answered_whole(client: Any):
    answer = create(client, system="be short", extra_body=says("a b c"))
    assert ("message", "assistant", MODEL) == (answer.type, answer.role, answer.model)
    assert [("text", "a b c")] == [(each.type, each.text) for each in answer.content]
    assert ("end_turn", None) == (answer.stop_reason, answer.stop_sequence)
    assert answer.usage.input_tokens > 0
    assert "max_tokens" == create(client, max_tokens=2).stop_reason


def test_a_message_is_streamed(client: Any):
    events = list(create(client, stream=True, extra_body=says("größer 🦉")))
    kinds = list(dict.fromkeys(each.type for each in events if each.type != "ping"))
    assert [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ] == kinds
    whole = create(client, extra_body=says("größer 🦉"))
    assert whole.usage.input_tokens == events[0].message.usage.input_tokens
    assert whole.usage.output_tokens == events[-2].usage.output_tokens
    texts = [each.delta.text for each in events if each.type == "content_block_delta"]
    assert "größer 🦉" == "".join(texts)


def test_a_stop_sequence_is_named(client: Any):
    fields: Any = {"stop_sequences": ["STOP"], "extra_body": says("one STILL two STOP three")}
    answer = create(client, **fields)
    assert ("stop_sequence", "STOP") == (answer.stop_reason, answer.stop_sequence)
    assert "one STILL two " == answer.content[0].text
    events = list(create(client, stream=True, **fields))
    end = next(each for each in events if each.type == "message_delta")
    assert ("stop_sequence", "STOP") == (end.delta.stop_reason, end.delta.stop_sequence)


def test_tools_are_called_and_their_results_taken(client: Any):
    fields: Any = {"tools": [WEATHER], "tool_choice": {"type": "any"}}
    answer = create(client, **fields)
    call = answer.content[0]
    assert ("tool_use", "tool_use", "get_weather") == (answer.stop_reason, call.type, call.name)
    assert isinstance(call.input["city"], str)
    with client.messages.stream(model=MODEL, max_tokens=50, messages=HELLO, **fields) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_message()
    assert call.input == streamed.content[0].input
    assert "tool_use" == streamed.stop_reason
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    messages = [
        *HELLO,
        {"role": "assistant", "content": [each.model_dump() for each in answer.content]},
        {"role": "user", "content": [result]},
    ]
    after = create(client, messages=messages, tools=[WEATHER], extra_body=says("it rains"))
    assert "it rains" == after.content[0].text


def test_blocks_come_one_after_the_other(client: Any):
    asked = [{"role": "user", "content": "get_weather and get_time"}]
    time = {"name": "get_time", "input_schema": {"type": "object"}}
    events = list(create(client, messages=asked, tools=[WEATHER, time], stream=True))
    open_block, seen = None, []
    for event in events:
        if event.type == "content_block_start":
            assert open_block is None
            open_block = event.index
            seen.append((event.index, event.content_block.name))
        elif event.type == "content_block_delta":
            assert open_block == event.index
        elif event.type == "content_block_stop":
            assert open_block == event.index
            open_block = None
    assert [(0, "get_weather"), (1, "get_time")] == seen


def test_tokens_are_counted(client: Any):
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO)
    assert create(client).usage.input_tokens == counted.input_tokens


def test_errors_have_anthropics_shape(client: Any):
    with pytest.raises(anthropic.NotFoundError) as missing:
        create(client, model="other")
    assert "not_found_error" == missing.value.body["error"]["type"]
    with pytest.raises(anthropic.BadRequestError) as wrong:
        create(client, extra_body={"temperature": "warm"})
    assert "invalid_request_error" == wrong.value.body["error"]["type"]
    assert "temperature" in wrong.value.body["error"]["message"]


def test_a_failure_in_mid_stream_is_raised_by_the_client(client: Any):
    events: list[Any] = []
    stream = create(client, stream=True, extra_body={"simulated": {"fail_after": 3}})
    with pytest.raises(anthropic.APIError):
        events.extend(stream)
    assert "message_start" == events[0].type
