"""Requests as bodies of OpenAI's API, and its chunks as deltas."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from pyserve.llm import Delta, GenerateRequest, Logprob, ToolCall, Usage
from pyserve.llm.engines.openai_json import body_of, deltas_of, error_of, vectors_of
from pyserve.llm.v1 import engine_pb2 as pb


def _chat(**fields):
    said = pb.ChatMessage(role="user", content=[pb.ContentPart(text="hi")])
    return pb.Chat(messages=[said], **fields)


def test_a_chat_has_what_was_set_and_nothing_else():
    request = GenerateRequest(pb.GenerateRequest(chat=_chat(), stream=True), "m")
    assert {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    } == body_of(request)


def test_a_chat_has_all_that_was_set():
    message = pb.GenerateRequest(
        chat=_chat(
            parallel_tool_calls=False,
            tools=[pb.Tool(name="f")],
            tool_choice=pb.ToolChoice(mode=pb.ToolChoice.MODE_REQUIRED),
            reasoning_effort="low",
        ),
        n=2,
        max_tokens=9,
        stop=["x"],
        logprobs=True,
        sampling=pb.Sampling(temperature=0, top_k=4, seed=0, logit_bias={3: 1.0}),
        response_format=pb.ResponseFormat(kind="KIND_JSON_OBJECT"),
        other_json='{"mine": [1], "off": false}',
    )
    found = body_of(GenerateRequest(message, "m"), max_tokens_field="max_completion_tokens")
    for name, value in {
        "parallel_tool_calls": False,
        "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "reasoning_effort": "low",
        "n": 2,
        "max_completion_tokens": 9,
        "stop": ["x"],
        "logprobs": True,
        "top_logprobs": 0,
        "temperature": 0,
        "top_k": 4,
        "seed": 0,
        "logit_bias": {"3": 1.0},
        "response_format": {"type": "json_object"},
        "mine": [1],
        "off": False,
    }.items():
        assert value == found[name], name


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([pb.Prompt(text="a")], "a"),
        ([pb.Prompt(text="a"), pb.Prompt(text="b")], ["a", "b"]),
        ([pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2]))], [1, 2]),
        ([pb.Prompt(text="")], " "),
    ],
)
def test_a_completion_has_its_prompts(prompts, expected):
    message = pb.GenerateRequest(prompts=pb.Prompts(prompts=prompts), logprobs=True, top_logprobs=2)
    found = body_of(GenerateRequest(message, "m"))
    assert (expected, 2) == (found["prompt"], found["logprobs"])


def _choice(delta, **fields):
    return {"choices": [{"index": 1, "delta": delta, **fields}]}


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (_choice({"role": "assistant", "content": None}), []),
        (_choice({"content": "hi"}, finish_reason=None), [Delta("hi", index=1)]),
        (_choice({}, finish_reason="length"), [Delta(index=1, finish_reason="length")]),
        (_choice({}, finish_reason="abort"), [Delta(index=1, finish_reason="stop")]),
        (_choice({"reasoning_content": "so"}), [Delta(index=1, reasoning="so")]),
        (
            _choice({"content": ""}, finish_reason="stop", stop_reason="###"),
            [Delta(index=1, finish_reason="stop", stop_sequence="###")],
        ),
        (
            _choice({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}),
            [Delta(index=1, tool_calls=[ToolCall(0, "c", "f", "")])],
        ),
        (
            _choice(
                {"content": "a"},
                logprobs={
                    "content": [
                        {
                            "token": "a",
                            "logprob": -1.0,
                            "bytes": [97],
                            "top_logprobs": [{"token": "b", "logprob": -2.0, "bytes": None}],
                        }
                    ]
                },
            ),
            [
                Delta(
                    "a",
                    index=1,
                    logprobs=[Logprob("a", -1.0, [Logprob("b", -2.0)], b"a")],
                )
            ],
        ),
        (
            {"choices": [{"text": "t", "index": 0}], "usage": {"prompt_tokens": 1}},
            [Delta("t", usage=Usage(1))],
        ),
        (
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 3,
                    "completion_tokens": 2,
                    "prompt_tokens_details": {"cached_tokens": 1},
                },
            },
            [Delta(usage=Usage(3, 2, 1))],
        ),
        (
            {
                "choices": [
                    {
                        "text": "ab",
                        "index": 0,
                        "logprobs": {
                            "tokens": ["a", "b"],
                            "token_logprobs": [None, -1.0],
                            "top_logprobs": [None, {"c": -3.0}],
                        },
                    }
                ]
            },
            [
                Delta(
                    "ab",
                    logprobs=[Logprob("a", 0.0), Logprob("b", -1.0, [Logprob("c", -3.0)])],
                )
            ],
        ),
        ({"choices": [], "usage": None}, []),
    ],
)
def test_a_chunk_becomes_deltas(chunk, expected):
    assert expected == list(deltas_of(chunk))


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        (400, {"error": {"message": "too long", "param": "n"}}, "INVALID_ARGUMENT", "n: too long"),
        (422, {"detail": "x"}, "INVALID_ARGUMENT", "x"),
        (404, {"message": "no model"}, "NOT_FOUND", "no model"),
        (401, {"error": {"message": "bad key"}}, "FAILED_PRECONDITION", "API key: bad key"),
        (429, None, "RESOURCE_EXHAUSTED", "status 429"),
        (503, {"error": {"message": "loading"}}, "UNAVAILABLE", "loading"),
        (500, "html", "INTERNAL", "html"),
    ],
)
def test_an_error_keeps_the_words_of_the_engine(status, body, code, text):
    error = error_of("the engine", status, body)
    assert StatusCode[code] is error.code
    assert text in error.details


def test_a_pause_that_the_engine_asks_for_is_passed_on():
    error = error_of("the engine", 429, None, {"retry-after": "7"})
    assert ("retry-after", "7") in error.trailing_metadata


def test_vectors_are_in_the_order_of_the_inputs():
    body = {"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]}
    assert [[1.0], [2.0]] == vectors_of(body, 2)
    with pytest.raises(ValueError, match="2 embeddings for 3 inputs"):
        vectors_of(body, 3)
