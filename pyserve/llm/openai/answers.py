"""Answers of OpenAI's API from the deltas of an engine: an object, or the events of a stream.

A class for each API collects its choices; ``events`` and ``whole`` drive it.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyserve.llm.openai.text import Text
from pyserve.llm.openai_api_models import (
    ChatCompletionResponse,
    CompletionResponse,
    Json,
    UsageInfo,
    new_id,
)
from pyserve.llm.v1 import engine_pb2

_REASONS = {
    engine_pb2.FINISH_REASON_STOP: "stop",
    engine_pb2.FINISH_REASON_LENGTH: "length",
    engine_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
    engine_pb2.FINISH_REASON_CONTENT_FILTER: "content_filter",
}
DONE = "data: [DONE]\n\n"
Deltas = AsyncIterator[engine_pb2.Delta]


@dataclass(slots=True)
class Asked:
    """The parts of a request that its answer depends on.

    Attributes:
        model: The name that the client has given.
        choices: How many choices the answer has, of all prompts together.
        stop: Texts that end a choice.
        wants_usage: The stream ends with what was used.
        one_tool_call: Of several tool calls only the first one is wanted.
        wants_logprobs: Log probabilities are part of the answer.
    """

    model: str
    choices: int = 1
    stop: Sequence[str] = ()
    wants_usage: bool = False
    one_tool_call: bool = False
    wants_logprobs: bool = False


@dataclass(slots=True)
class Choice:
    """The state of one choice so far.

    Attributes:
        text: Its text's state.
        content, reasoning, refusal: The pieces.
        calls: Its tool calls, by index.
        logprobs: Of its tokens, as the API has them.
        reason: Why it has ended; "": it has not.
    """

    text: Text
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: dict[int, Json] = field(default_factory=dict)
    logprobs: list[engine_pb2.TokenLogprob] = field(default_factory=list)
    has_begun: bool = False
    reason: str = ""


@dataclass(slots=True)
class Piece:
    """The part of a delta that the client sees.

    Attributes:
        text: New text.
        calls: New pieces of tool calls, as the API has them.
        reason: Why the choice has ended; "": it has not.
        delta: The delta itself.
    """

    text: str
    calls: list[Json]
    reason: str
    delta: engine_pb2.Delta


class Answer(Protocol):
    """An answer in the making."""

    state: State

    def chunk(self, index: int, piece: Piece) -> Json | None:
        """Return what an event says of a piece; ``None``: nothing."""

    def head(self) -> Json:
        """Return the fields that all events have."""

    def complete(self) -> Any:
        """Return the answer as one object."""


class State:
    """The choices of an answer, and what was used.

    Args:
        asked: What counts of the request.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.created = int(time.time())
        self.choices = [Choice(Text(asked.stop)) for _ in range(asked.choices)]
        self.usage = engine_pb2.Usage()

    @property
    def is_ended(self) -> bool:
        """Whether every choice has ended, so that the engine need not go on."""
        return all(each.reason for each in self.choices)

    def take(self, delta: engine_pb2.Delta) -> Piece | None:
        """Add a delta; return what is to be shown of it."""
        if delta.HasField("usage"):
            self.usage.CopyFrom(delta.usage)
        choice = self.choices[delta.index]
        if choice.reason:
            return None
        is_last = bool(delta.finish_reason)
        text = choice.text.take(delta.text, delta.text_bytes, is_last=is_last)
        calls = [found for each in delta.tool_calls if (found := self._call(choice, each))]
        choice.content.append(text)
        choice.reasoning.append(delta.reasoning)
        choice.refusal.append(delta.refusal)
        choice.logprobs.extend(delta.logprobs)
        if choice.text.is_stopped:
            choice.reason = "stop"
        elif is_last:
            reason = _REASONS[delta.finish_reason]
            choice.reason = "tool_calls" if choice.calls and reason == "stop" else reason
        return Piece(text, calls, choice.reason, delta)

    def _call(self, choice: Choice, piece: engine_pb2.ToolCallDelta) -> Json | None:
        if self.asked.one_tool_call and piece.index > 0:
            return None
        known = choice.calls.get(piece.index)
        function: Json = {"arguments": piece.arguments}
        found: Json = {"index": piece.index, "function": function}
        if known is None:
            function = {"name": piece.name, "arguments": piece.arguments}
            made = {"id": piece.id or new_id("call"), "type": "function", "function": function}
            choice.calls[piece.index] = made
            return {"index": piece.index, **made, "function": dict(function)}
        known["function"]["arguments"] += piece.arguments
        return found

    def used(self) -> UsageInfo:
        """Return what was used."""
        found = self.usage
        total = found.prompt_tokens + found.completion_tokens
        details = {"cached_tokens": found.cached_tokens} if found.cached_tokens else None
        return UsageInfo(
            prompt_tokens=found.prompt_tokens,
            completion_tokens=found.completion_tokens,
            total_tokens=total,
            prompt_tokens_details=details,
        )


class ChatAnswer:
    """The answer to a chat completion."""

    def __init__(self, asked: Asked) -> None:
        self.state = State(asked)
        self._id = new_id("chatcmpl")

    def head(self) -> Json:
        """Return the fields that all events have."""
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self.state.created,
            "model": self.state.asked.model,
        }

    def chunk(self, index: int, piece: Piece) -> Json | None:
        """Return what an event says of a piece; ``None``: nothing."""
        choice = self.state.choices[index]
        shown: Json = {} if choice.has_begun else {"role": "assistant", "content": ""}
        choice.has_begun = True
        if piece.text:
            shown["content"] = piece.text
        if piece.delta.reasoning:
            shown["reasoning_content"] = piece.delta.reasoning
        if piece.delta.refusal:
            shown["refusal"] = piece.delta.refusal
        if piece.calls:
            shown["tool_calls"] = piece.calls
        if not shown and not piece.reason and not piece.delta.logprobs:
            return None
        found = {"index": index, "delta": shown, "finish_reason": piece.reason or None}
        if self.state.asked.wants_logprobs and piece.delta.logprobs:
            found["logprobs"] = chat_logprobs(piece.delta.logprobs)
        return found

    def complete(self) -> ChatCompletionResponse:
        """Return the answer as one object."""
        return ChatCompletionResponse.model_validate(
            {
                **self.head(),
                "object": "chat.completion",
                "choices": [self._choice(*each) for each in enumerate(self.state.choices)],
                "usage": self.state.used(),
            }
        )

    def _choice(self, index: int, choice: Choice) -> Json:
        text, calls = "".join(choice.content), list(choice.calls.values())
        message: Json = {
            "role": "assistant",
            "content": None if calls and not text else text,
        }
        if calls:
            message["tool_calls"] = calls
        if reasoning := "".join(choice.reasoning):
            message["reasoning_content"] = reasoning
        if refusal := "".join(choice.refusal):
            message["refusal"] = refusal
        wants = self.state.asked.wants_logprobs
        return {
            "index": index,
            "message": message,
            "logprobs": chat_logprobs(choice.logprobs) if wants else None,
            "finish_reason": choice.reason or "stop",
        }


class CompletionAnswer:
    """The answer to a completion."""

    def __init__(self, asked: Asked) -> None:
        self.state = State(asked)
        self._id = new_id("cmpl")

    def head(self) -> Json:
        """Return the fields that all events have."""
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self.state.created,
            "model": self.state.asked.model,
        }

    def chunk(self, index: int, piece: Piece) -> Json | None:
        """Return what an event says of a piece; ``None``: nothing."""
        if not piece.text and not piece.reason:
            return None
        wants = self.state.asked.wants_logprobs
        return {
            "index": index,
            "text": piece.text,
            "logprobs": text_logprobs(piece.delta.logprobs) if wants else None,
            "finish_reason": piece.reason or None,
        }

    def complete(self) -> CompletionResponse:
        """Return the answer as one object."""
        wants = self.state.asked.wants_logprobs
        choices = [
            {
                "index": index,
                "text": "".join(each.content),
                "logprobs": text_logprobs(each.logprobs) if wants else None,
                "finish_reason": each.reason or "stop",
            }
            for index, each in enumerate(self.state.choices)
        ]
        return CompletionResponse.model_validate(
            {**self.head(), "choices": choices, "usage": self.state.used()}
        )


async def whole(answer: Answer, deltas: Deltas) -> Any:
    """Return the answer that is not streamed; the engine is stopped once all choices have ended."""
    async with aclosing(deltas) as given:  # type: ignore[type-var]  # Engines' are generators.
        async for delta in given:
            answer.state.take(delta)
            if answer.state.asked.stop and answer.state.is_ended:
                break
    return answer.complete()


async def events(answer: Answer, deltas: Deltas) -> AsyncGenerator[str, None]:
    """Yield the events of a stream, each whole, ``[DONE]`` last."""
    state = answer.state
    async with aclosing(deltas) as given:  # type: ignore[type-var]  # As above.
        async for delta in given:
            for chunk in _chunks(answer, delta):
                yield _event({**answer.head(), "choices": [chunk]})
            if state.asked.stop and state.is_ended:
                break
    if state.asked.wants_usage:
        usage = state.used().model_dump(exclude_none=True)
        yield _event({**answer.head(), "choices": [], "usage": usage})
    yield DONE


def _chunks(answer: Answer, delta: engine_pb2.Delta) -> Iterator[Json]:
    piece = answer.state.take(delta)
    if piece is not None and (chunk := answer.chunk(delta.index, piece)) is not None:
        yield chunk


def _event(content: Json) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False, separators=(',', ':'))}\n\n"


def chat_logprobs(found: Sequence[engine_pb2.TokenLogprob]) -> Json:
    """Return log probabilities as chat completions have them."""
    return {
        "content": [
            {**_logprob(each), "top_logprobs": [_logprob(other) for other in each.top]}
            for each in found
        ]
    }


def _logprob(found: engine_pb2.TokenLogprob) -> Json:
    raw = found.token_bytes or found.token.encode()
    return {"token": found.token, "logprob": found.logprob, "bytes": list(raw)}


def text_logprobs(found: Sequence[engine_pb2.TokenLogprob]) -> Json:
    """Return log probabilities as completions have them."""
    return {
        "tokens": [each.token for each in found],
        "token_logprobs": [each.logprob for each in found],
        "top_logprobs": [{other.token: other.logprob for other in each.top} for each in found],
    }
