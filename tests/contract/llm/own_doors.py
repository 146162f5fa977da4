"""One program, for the doors of pyserve and for those that llama.cpp has itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Json = dict[str, Any]
Program = Callable[[Any, Any], list[Json]]
"""Takes a client of ``openai`` and one of ``anthropic``; returns all that came."""

MODEL = "small"
SETTINGS: Json = {"n_ctx": 1024, "n_parallel": 2, "name": MODEL}
_ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FORM: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": _CITY}}
_TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": _CITY}}
# What is new each time, or says how fast a machine is.
_VOLATILE = frozenset(
    {
        *("id", "created", "created_at", "completed_at", "item_id", "timings", "tool_call_id"),
        *("call_id", "system_fingerprint", "obfuscation", "cached_tokens"),
    }
)


def _events(answer: Any) -> list[Json]:
    each: Iterable[Any] = [answer] if hasattr(answer, "model_dump") else answer
    return [event.model_dump(mode="json", exclude_unset=True) for event in each]


def _chat(**fields: Any) -> Program:
    body = {"model": MODEL, "messages": _ASKED, "max_tokens": 12, "temperature": 0, **fields}
    return lambda openai, _: _events(openai.chat.completions.create(**body))


def _completion(**fields: Any) -> Program:
    body = {"model": MODEL, "prompt": "One, two,", "max_tokens": 8, "temperature": 0, **fields}
    return lambda openai, _: _events(openai.completions.create(**body))


def _response(**fields: Any) -> Program:
    body = {"model": MODEL, "input": "Say yes.", "temperature": 0, **fields}
    return lambda openai, _: _events(openai.responses.create(**{"max_output_tokens": 64, **body}))


def _message(**fields: Any) -> Program:
    body: Any = {"model": MODEL, "messages": _ASKED, "max_tokens": 12, **fields}
    return lambda _, anthropic: _events(anthropic.messages.create(**body, extra_body=_COLD))


def _chats_streamed(openai: Any, anthropic: Any) -> list[Json]:
    found = _chat(n=2, max_tokens=4, stream=True)(openai, anthropic)
    # How choices interleave is not the same each time.
    return sorted(found, key=lambda event: event["choices"][0]["index"])


def _count(_: Any, anthropic: Any) -> list[Json]:
    return _events(anthropic.messages.count_tokens(model=MODEL, messages=_ASKED))


_COLD = {"temperature": 0}
_USAGE = {"stream": True, "stream_options": {"include_usage": True}}

PROGRAMS: dict[str, Program] = {
    "chat": _chat(),
    "chat, streamed": _chat(stream=True),
    "chat, streamed, usage": _chat(**_USAGE),
    "chat, n": _chat(n=2, max_tokens=4),
    "chat, logprobs": _chat(logprobs=True, top_logprobs=2, max_tokens=3),
    "chat, stop": _chat(stop=["Paris"], max_tokens=40),
    "chat, schema": _chat(response_format=_FORM, max_tokens=60),
    "chat, tool": _chat(tools=[_TOOL], max_tokens=30),
    "completion": _completion(),
    "completion, streamed": _completion(stream=True),
    "completion, logprobs": _completion(logprobs=1),
    "response": _response(),
    "response, streamed": _response(stream=True),
    "response, cut": _response(max_output_tokens=1),
    "message": _message(),
    "message, streamed": _message(stream=True),
    "message, stop": _message(stop_sequences=["Paris"], max_tokens=40),
    "count": _count,
    "chat, n, streamed": _chats_streamed,
    "chat, tool demanded": _chat(tools=[_TOOL], tool_choice="required", max_tokens=60),
    "chat, other model": _chat(model="other", max_tokens=4),
    "chat, too long": _chat(messages=[{"role": "user", "content": "word " * 2000}]),
    "chat, wrong type": _chat(temperature="warm"),
    "response, of before": _response(previous_response_id="resp_1"),
    "message, other model": _message(model="other", max_tokens=4),
}


def run(program: Program, openai: Any, anthropic: Any) -> list[Json]:
    """Return all that came, or the error's body, without what is new each time."""
    try:
        return [_plain(each) for each in program(openai, anthropic)]
    except Exception as error:
        if not hasattr(error, "status_code"):
            raise
        return [{"status": error.status_code, "error": _plain(error.body)}]  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        # Anthropic's API counts apart what was found in the cache, which is not the same each time.
        cached = value.get("cache_read_input_tokens")
        if cached is not None:
            value = {**value, "input_tokens": value["input_tokens"] + cached}
            del value["cache_read_input_tokens"]
        return {name: _plain(each) for name, each in value.items() if name not in _VOLATILE}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def differences(mine: Any, own: Any, path: str = "") -> Iterator[str]:
    """Yield where two answers differ: the place without its numbers, and how."""
    if isinstance(mine, dict) and isinstance(own, dict):
        for name in mine | own:
            place = f"{path}.{name}" if path else name
            if name not in own:
                yield f"{place}: added"
            elif name not in mine:
                yield f"{place}: left out"
            else:
                yield from differences(mine[name], own[name], place)
    elif isinstance(mine, list) and isinstance(own, list):
        if len(mine) != len(own):
            yield f"{path}[]: {len(mine)} in place of {len(own)}"
        for left, right in zip(mine, own, strict=False):
            yield from differences(left, right, f"{path}[]" if path else _kind(left))
    elif mine != own:
        yield f"{path}: changed"


def _kind(event: Any) -> str:
    return str(event.get("type") or event.get("object") or "answer").removeprefix("response.")
