"""Programs with LangChain's and LiteLLM's clients; each prints nothing and fails by itself.

A process of their own runs them: these packages leave loops and sockets open when they end.
Arguments: the name of a program, and the URL of the ingress.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MODEL = "simulated"
_HELLO = [{"role": "user", "content": "hello"}]
_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather.", "parameters": _PARAMETERS},
}
_NO_RETRIES: Any = {"api_key": "none", "max_retries": 0}


def langchain(url: str) -> None:
    """LangChain's ChatOpenAI: whole, streamed, tools, structured output, Responses."""
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(
        model=MODEL, base_url=f"{url}/v1", timeout=30, stream_usage=True, **_NO_RETRIES
    )
    answer = model.invoke("hello")
    assert answer.content
    assert "stop" == answer.response_metadata["finish_reason"]
    said = model.bind(extra_body={"simulated": {"text": "größer als 🦉"}})
    chunks = list(said.stream("hello"))
    assert "größer als 🦉" == "".join(each.content for each in chunks)
    assert 1 == sum(1 for each in chunks if each.usage_metadata)
    _langchain_tools(model)
    through = model.model_copy(update={"use_responses_api": True})
    assert through.invoke("hello").text
    assert "".join(each.text for each in through.stream("hello"))


def _langchain_tools(model: Any) -> None:
    bound = model.bind_tools([_WEATHER], tool_choice="required")
    [call] = bound.invoke("hello").tool_calls
    assert ("get_weather", True) == (call["name"], "city" in call["args"])
    whole = None
    for chunk in bound.stream("hello"):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert [call["args"]] == [each["args"] for each in whole.tool_calls]
    schema = {"title": "Place", **_PARAMETERS}
    for method in ("json_schema", "function_calling"):
        found = model.with_structured_output(schema, method=method).invoke("hello")
        assert isinstance(found["city"], str)


def litellm(url: str) -> None:
    """LiteLLM's client of OpenAI's API and of Anthropic's, and the errors that it knows."""
    # Else it fetches a list of prices when it is imported.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.telemetry = False
    openai: Any = {"model": f"openai/{MODEL}", "api_base": f"{url}/v1", **_NO_RETRIES}
    anthropic: Any = {"model": f"anthropic/{MODEL}", "api_base": url, **_NO_RETRIES}
    for fields in (openai, {**anthropic, "max_tokens": 20}):
        answer: Any = litellm.completion(messages=_HELLO, **fields)
        assert answer.choices[0].message.content
        assert answer.usage.completion_tokens > 0
        chunks: Any = litellm.completion(messages=_HELLO, stream=True, **fields)
        assert "".join(each.choices[0].delta.content or "" for each in chunks)
        asked: Any = {"tools": [_WEATHER], "tool_choice": "required"}
        called: Any = litellm.completion(messages=_HELLO, **asked, **fields)
        call = called.choices[0].message.tool_calls[0].function
        assert ("get_weather", True) == (call.name, "city" in json.loads(call.arguments))
    assert 2 == len(litellm.embedding(input=["one", "two"], **openai).data)
    long = [{"role": "user", "content": "word " * 40_000}]
    for error, fields in [
        (litellm.ContextWindowExceededError, {**openai, "messages": long}),
        (litellm.ContextWindowExceededError, {**anthropic, "max_tokens": 9, "messages": long}),
        (litellm.NotFoundError, {**openai, "model": "openai/other", "messages": _HELLO}),
    ]:
        try:
            litellm.completion(**fields)
        except error:
            continue
        raise AssertionError(f"{error.__name__} was not raised")


PROGRAMS = {"langchain": langchain, "litellm": litellm}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2])
