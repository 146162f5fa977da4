"""Requests, as engines read them."""

import json

import pytest

from pyserve.llm import GenerateRequest, InvalidRequest, ScoreRequest
from pyserve.llm.v1 import engine_pb2 as pb


def _chat(*messages, **fields):
    return GenerateRequest(pb.GenerateRequest(chat=pb.Chat(messages=messages, **fields)))


def _said(role, *texts, **fields):
    parts = [pb.ContentPart(text=text) for text in texts]
    return pb.ChatMessage(role=role, content=parts, **fields)


def test_messages_are_in_the_shape_of_openai():
    call = pb.ToolCall(id="c1", name="add", arguments='{"a": 1}')
    image = '{"type": "image_url", "image_url": {"url": "u"}}'
    request = _chat(
        _said("system", "Be brief."),
        _said("user", "one", "two", name="Ann"),
        pb.ChatMessage(
            role="user", content=[pb.ContentPart(text="see"), pb.ContentPart(json=image)]
        ),
        _said("assistant", tool_calls=[call], reasoning="so"),
        _said("tool", "2", tool_call_id="c1", other_json='{"extra": true}'),
        _said("assistant"),
    )
    assert [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one\ntwo", "name": "Ann"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "u"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a": 1}'},
                }
            ],
            "reasoning_content": "so",
        },
        {"role": "tool", "content": "2", "tool_call_id": "c1", "extra": True},
        {"role": "assistant", "content": ""},
    ] == request.messages


def test_tools_are_in_the_shape_of_openai():
    schema = {"type": "object"}
    request = _chat(
        _said("user", "x"),
        tools=[
            pb.Tool(name="f", description="d", parameters_json=json.dumps(schema), strict=False),
            pb.Tool(other_json='{"type": "custom", "name": "g"}'),
        ],
        tool_choice=pb.ToolChoice(mode=pb.ToolChoice.MODE_NAMED, name="f"),
    )
    function = {"name": "f", "description": "d", "parameters": schema, "strict": False}
    assert [
        {"type": "function", "function": function},
        {"type": "custom", "name": "g"},
    ] == request.tools
    assert {"type": "function", "function": {"name": "f"}} == request.tool_choice


def test_what_is_not_set_is_none():
    request = GenerateRequest(pb.GenerateRequest())
    assert (1, None, None) == (request.n, request.max_tokens, request.logprobs)
    assert request.sampling.temperature is None
    assert ([], [], [], {}) == (request.messages, request.tools, request.stop, request.extra)
    assert request.prompt is None
    assert request.prompt_token_ids is None
    assert request.response_format is None


def test_numbers_are_as_the_client_wrote_them():
    sampling = pb.Sampling(temperature=0.7, top_k=3, logit_bias={5: -1.5}, seed=2**40)
    request = GenerateRequest(pb.GenerateRequest(sampling=sampling))
    found = request.sampling
    assert (0.7, 3, {5: -1.5}, 2**40) == (
        found.temperature,
        found.top_k,
        found.logit_bias,
        found.seed,
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pb.ResponseFormat(), None),
        (pb.ResponseFormat(kind="KIND_JSON_OBJECT"), {"type": "json_object"}),
        (
            pb.ResponseFormat(kind="KIND_JSON_SCHEMA", name="n", schema_json="{}", strict=True),
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
        ),
        (
            pb.ResponseFormat(kind="KIND_OTHER", other_json='{"type": "grammar"}'),
            {"type": "grammar"},
        ),
    ],
)
def test_a_format_is_in_the_shape_of_openai(wanted, expected):
    request = GenerateRequest(pb.GenerateRequest(response_format=wanted))
    assert expected == request.response_format


def test_one_choice_of_many_has_its_own_prompt_seed_and_id():
    prompts = [pb.Prompt(text="a"), pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2]))]
    message = pb.GenerateRequest(
        request_id="r",
        n=2,
        prompts=pb.Prompts(prompts=prompts),
        sampling=pb.Sampling(seed=7),
    )
    request = GenerateRequest(message, "m", "adapter")
    one = request.one_of(1, 1)
    assert [[1, 2]] == one.prompts
    assert (1, 8, "r-3", "m", "adapter") == (
        one.n,
        one.sampling.seed,
        one.request_id,
        one.model,
        one.adapter,
    )
    assert ["a", [1, 2]] == request.prompts


@pytest.mark.parametrize("text", ["[1]", "{", "3"])
def test_other_fields_that_are_no_object_are_refused(text):
    with pytest.raises(InvalidRequest):
        _ = GenerateRequest(pb.GenerateRequest(other_json=text)).extra


@pytest.mark.parametrize(
    ("queries", "expected"),
    [(["q"], [("q", "a"), ("q", "b")]), (["q", "r"], [("q", "a"), ("r", "b")])],
)
def test_each_document_has_its_query(queries, expected):
    assert expected == ScoreRequest(pb.ScoreRequest(queries=queries, documents=["a", "b"])).pairs


def test_a_wrong_number_of_queries_is_refused():
    request = ScoreRequest(pb.ScoreRequest(queries=["q"] * 3, documents=["a", "b"]))
    with pytest.raises(InvalidRequest, match="3 queries for 2 documents"):
        _ = request.pairs
