"""Requests of OpenAI's API as engines get them."""

import pytest

from pyserve.llm.errors import InvalidRequest
from pyserve.llm.openai import requests
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
    ScoreRequest,
    TranscriptionRequest,
)
from pyserve.llm.requests import GenerateRequest

pytestmark = pytest.mark.parity("G-86")
HELLO = [{"role": "user", "content": "Hello"}]


def chat(**fields) -> GenerateRequest:
    request = ChatCompletionRequest(**{"messages": HELLO} | fields)
    return GenerateRequest(requests.generate_of_chat(request))


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "Be brief."}, *HELLO],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call-1",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"a": 1}'},
                    }
                ],
            },
            {"role": "tool", "content": "2", "tool_call_id": "call-1"},
        ],
        [{"role": "user", "content": "hi", "name": "Ann", "weight": 0}],
    ],
)
def test_messages_arrive_as_they_are(messages):
    assert messages == chat(messages=messages).messages


def test_contents_that_can_be_read_once_are_kept():
    parts = iter([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])

    assert "a\nb" == chat(messages=[{"role": "user", "content": parts}]).messages[0]["content"]


def test_sampling_and_limits_arrive():
    found = chat(
        temperature=0,
        top_k=5,
        seed=7,
        logit_bias={"42": -1.5},
        max_tokens=9,
        max_completion_tokens=8,
        n=3,
        stop="end",
        logprobs=True,
        top_logprobs=2,
        priority=4,
        guided_regex="a+",
    )

    assert (0, 5, 7, None) == (
        found.sampling.temperature,
        found.sampling.top_k,
        found.sampling.seed,
        found.sampling.top_p,
    )
    assert {42: -1.5} == found.sampling.logit_bias
    assert (8, 3, ["end"], 2, 4) == (
        found.max_tokens,
        found.n,
        found.stop,
        found.logprobs,
        found.priority,
    )
    assert {"guided_regex": "a+"} == found.extra


@pytest.mark.parametrize(
    "choice",
    [None, "none", "required", {"type": "function", "function": {"name": "f"}}],
)
def test_tools_and_their_choice_arrive(choice):
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}, "strict": True},
    }

    found = chat(tools=[tool, {"type": "web_search"}], tool_choice=choice)

    assert [tool, {"type": "web_search"}] == found.tools
    assert choice == found.tool_choice


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        {"type": "structural_tag", "structures": [1]},
    ],
)
def test_the_format_of_the_answer_arrives(wanted):
    assert wanted == chat(response_format=wanted).response_format


def test_text_is_no_format_of_its_own():
    assert chat(response_format={"type": "text"}).response_format is None


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_are_texts_or_tokens(prompt, expected):
    made = requests.generate_of_completion(CompletionRequest(prompt=prompt))

    assert expected == GenerateRequest(made).prompts


@pytest.mark.parametrize(
    ("make", "param"),
    [
        (lambda: chat(messages=[{"content": "x"}]), r"messages\[0\]\.role"),
        (lambda: chat(messages=[{"role": "user", "content": 3}]), r"messages\[0\]\.content"),
        (lambda: chat(tools=[{"type": "function"}]), r"tools\[0\]\.function\.name"),
        (lambda: chat(tool_choice="always"), "tool_choice"),
        (
            lambda: requests.generate_of_completion(CompletionRequest(prompt="a", echo=True)),
            "echo",
        ),
        (
            lambda: requests.generate_of_completion(CompletionRequest(prompt="a", best_of=2)),
            "best_of",
        ),
        (
            lambda: requests.score_of(ScoreRequest(text_1=["a", "b"], text_2=["c"])),
            "text_1",
        ),
        (lambda: requests.transcribe_of(TranscriptionRequest(file="path")), "file"),
    ],
)
def test_what_is_wrong_is_named(make, param: str):
    with pytest.raises(InvalidRequest, match=rf"INVALID_ARGUMENT: {param}: "):
        make()
