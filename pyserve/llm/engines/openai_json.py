"""Turns requests into bodies of OpenAI's API, and its chunks into deltas. Pure.

Fields beyond that API (``top_k``, ``min_p``) have vLLM's names, and are only sent if the client has
set them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpc import StatusCode

from pyserve.errors import Abort
from pyserve.llm.chats import Json
from pyserve.llm.deltas import FINISH_REASONS, Delta, FinishReason, Logprob, ToolCall, Usage
from pyserve.llm.errors import EngineOverloaded, InvalidRequest
from pyserve.llm.requests import GenerateRequest

_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
_BAD_REQUEST, _NOT_FOUND, _TOO_MANY, _SERVER_ERROR = 400, 404, 429, 500
_UNAUTHORIZED = frozenset({401, 403})
_AWAY = frozenset({502, 503, 504})


def body_of(request: GenerateRequest, *, max_tokens_field: str = "max_tokens") -> Json:
    """Return the body of a request for a stream; a chat's for a chat.

    Args:
        request: It.
        max_tokens_field: The server's name for the field ``max_tokens``.
    """
    body: Json = {**request.extra, "model": request.model, "stream": True}
    body["stream_options"] = {"include_usage": True}
    sampling = request.sampling
    body |= {name: value for name in _SAMPLING if (value := getattr(sampling, name)) is not None}
    optional: Json = {
        max_tokens_field: request.max_tokens,
        "n": request.n if request.n > 1 else None,
        "stop": request.stop,
        "stop_token_ids": request.stop_token_ids,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()},
        "ignore_eos": sampling.ignore_eos or None,
        "response_format": request.response_format,
        "user": request.user,
    }
    optional |= _completion(request) if request.chat is None else _chat(request)
    body |= {name: value for name, value in optional.items() if value not in (None, [], {}, "")}
    return body


def _completion(request: GenerateRequest) -> Json:
    prompts = request.prompts
    prompt = prompts[0] if len(prompts) == 1 else prompts
    # Text that is empty is a prompt, too.
    found: Json = {"suffix": request.suffix, "logprobs": request.logprobs}
    return found | {"prompt": prompt or " "}


def _chat(request: GenerateRequest) -> Json:
    chat = request.chat
    assert chat is not None, "it was asked for"
    found: Json = {
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "reasoning_effort": chat.reasoning_effort,
        "chat_template": chat.chat_template,
        "chat_template_kwargs": request.chat_template_kwargs,
        "logprobs": None if request.logprobs is None else True,
        "top_logprobs": request.logprobs,
        "continue_final_message": chat.continue_final_message or None,
    }
    for name in ("parallel_tool_calls", "add_generation_prompt"):
        if chat.HasField(name):
            found[name] = getattr(chat, name)
    return found


def deltas_of(chunk: Mapping[str, Any]) -> Iterator[Delta]:
    """Yield the deltas of a chunk, of a chat or of a completion.

    Raises:
        LookupError, TypeError, AttributeError: It is none; see ``Garbage``.
    """
    usage = _usage(chunk.get("usage"))
    choices = chunk.get("choices") or []
    for number, choice in enumerate(choices):
        delta = _chat_delta(choice) if "delta" in choice else _text_delta(choice)
        delta.index = choice.get("index", 0)
        delta.finish_reason = _finish_reason(choice.get("finish_reason"))
        if isinstance(choice.get("stop_reason"), str):
            delta.stop_sequence = choice["stop_reason"]
        if number == len(choices) - 1:
            delta.usage = usage
        if not _is_empty(delta):
            yield delta
    if usage is not None and not choices:
        yield Delta(usage=usage)


def _is_empty(delta: Delta) -> bool:
    """Say whether there is nothing new, as in a chunk that only has the assistant's role."""
    return not (
        delta.text
        or delta.finish_reason
        or delta.reasoning
        or delta.tool_calls
        or delta.usage
        or delta.logprobs
        or delta.refusal
    )


def _chat_delta(choice: Mapping[str, Any]) -> Delta:
    given = choice["delta"]
    logprobs = choice.get("logprobs") or {}
    return Delta(
        given.get("content") or "",
        reasoning=given.get("reasoning_content") or given.get("reasoning") or "",
        refusal=given.get("refusal") or "",
        tool_calls=[_tool_call(each) for each in given.get("tool_calls") or ()],
        logprobs=[_logprob(each) for each in logprobs.get("content") or ()],
    )


def _text_delta(choice: Mapping[str, Any]) -> Delta:
    given = choice.get("logprobs") or {}
    logprobs: list[Logprob] = []
    if "content" in given:  # llama.cpp uses the format of chats here too.
        logprobs = [_logprob(each) for each in given["content"] or ()]
    elif given:
        tops = given.get("top_logprobs") or [{}] * len(given["tokens"])
        for token, logprob, top in zip(given["tokens"], given["token_logprobs"], tops, strict=True):
            found = [Logprob(*each) for each in (top or {}).items()]
            logprobs.append(Logprob(token, logprob or 0.0, found))
    return Delta(choice["text"], logprobs=logprobs)


def _tool_call(given: Mapping[str, Any]) -> ToolCall:
    function = given.get("function") or {}
    return ToolCall(
        given.get("index", 0),
        given.get("id") or "",
        function.get("name") or "",
        function.get("arguments") or "",
    )


def _logprob(given: Mapping[str, Any]) -> Logprob:
    top = [_logprob(each) for each in given.get("top_logprobs") or ()]
    raw = bytes(given.get("bytes") or ())
    return Logprob(given["token"], given["logprob"], top, raw, given.get("id", 0))


def _usage(given: Mapping[str, Any] | None) -> Usage | None:
    if not given:
        return None
    prompt = given.get("prompt_tokens_details") or {}
    completion = given.get("completion_tokens_details") or {}
    return Usage(
        given.get("prompt_tokens") or 0,
        given.get("completion_tokens") or 0,
        prompt.get("cached_tokens") or 0,
        completion.get("reasoning_tokens") or 0,
    )


def _finish_reason(name: str | None) -> FinishReason | None:
    if name is None:
        return None
    if name == "function_call":
        return "tool_calls"
    # Engines have reasons of their own, such as "abort"; all of them are an end.
    return name if name in FINISH_REASONS else "stop"  # type: ignore[return-value]


class Garbage(Abort):
    """An answer that does not follow OpenAI's API. The message names the engine and shows it."""

    def __init__(self, engine: str, what: object) -> None:
        text = f"{engine} answered what OpenAI's API does not know: {what!r:.200}"
        super().__init__(StatusCode.INTERNAL, text)


def error_of(
    engine: str, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> Abort:
    """Return the error for an answer that is not a success, with the engine's message.

    Args:
        engine: Its name, for people.
        status: Of its answer.
        body: The JSON of its answer; ``None``: there is none.
        headers: By their names in lower case.
    """
    message, param = _told(body)
    text = message or f"{engine} answered with the status {status}"
    if status in _UNAUTHORIZED:
        return Abort(
            StatusCode.FAILED_PRECONDITION,
            f"{engine} does not accept this deployment's API key: {text}",
        )
    if status == _TOO_MANY:
        retry_after = (headers or {}).get("retry-after", "")
        return EngineOverloaded(text, int(retry_after) if retry_after.isdigit() else 1)
    if status == _NOT_FOUND:
        return Abort(StatusCode.NOT_FOUND, text)
    if status in _AWAY:
        return Abort(StatusCode.UNAVAILABLE, f"{engine} is not available: {text}")
    if _BAD_REQUEST <= status < _SERVER_ERROR:
        return InvalidRequest(text, param)
    return Abort(StatusCode.INTERNAL, f"{engine} failed: {text}")


def _told(body: Any) -> tuple[str, str | None]:
    """Return the message of an error, in one of the shapes that servers have for it."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or ""
        param = error.get("param")
        return str(message), param if isinstance(param, str) else None
    return (error if isinstance(error, str) else ""), None


def vectors_of(body: Any, count: int) -> Sequence[Sequence[float]]:
    """Return the vectors of an answer of ``/embeddings``, in the order of the inputs.

    Raises:
        LookupError, TypeError, ValueError: It is none.
    """
    found = sorted(body["data"], key=lambda each: each["index"])
    if len(found) != count:
        raise ValueError(f"{len(found)} embeddings for {count} inputs")
    return [each["embedding"] for each in found]


def usage_of(body: Any) -> Usage | None:
    """Return the usage of an answer that is not streamed."""
    return _usage(body.get("usage"))
