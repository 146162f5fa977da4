"""Deltas: the new parts of an answer, as an engine yields them.

An engine may yield a ``str`` (text), a ``Delta``, or the protobuf message itself. Engines that
generate very many tokens a second should put several of them into one ``Delta``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyserve.llm.v1 import engine_pb2

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

FINISH_REASONS: dict[str, engine_pb2.FinishReason] = {
    "stop": engine_pb2.FINISH_REASON_STOP,
    "length": engine_pb2.FINISH_REASON_LENGTH,
    "tool_calls": engine_pb2.FINISH_REASON_TOOL_CALLS,
    "content_filter": engine_pb2.FINISH_REASON_CONTENT_FILTER,
}
"""The values on the wire, by the names that OpenAI's API has for them."""


@dataclass(slots=True)
class Usage:
    """Tokens so far, of all choices of a request together.

    Attributes:
        prompt_tokens: Of all its prompts.
        completion_tokens: Of all its choices.
        cached_tokens: Those of the prompts that were found in the prefix cache.
        reasoning_tokens: Those of the completions that are reasoning.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def message(self) -> engine_pb2.Usage:
        """Return it for the wire."""
        return engine_pb2.Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            reasoning_tokens=self.reasoning_tokens,
        )


@dataclass(slots=True)
class Timing:
    """How long a request waited for the engine, and how long its prompt took, in seconds."""

    waited_s: float = 0.0
    prefill_s: float = 0.0


@dataclass(slots=True)
class ToolCall:
    """A piece of a tool call; the pieces of one call add up.

    Attributes:
        index: Among the calls of the choice, from 0.
        id: With the first piece; empty: the ingress makes one.
        name: Of the tool, with the first piece.
        arguments: A piece of JSON.
    """

    index: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""

    def message(self) -> engine_pb2.ToolCallDelta:
        """Return it for the wire."""
        return engine_pb2.ToolCallDelta(
            index=self.index, id=self.id, name=self.name, arguments=self.arguments
        )


@dataclass(slots=True)
class Logprob:
    """The log probability of a token.

    Attributes:
        token: Its text.
        logprob: To base e.
        top: The likeliest tokens at its place.
        token_bytes: Where the token is no whole text.
        token_id: Its number.
    """

    token: str
    logprob: float
    top: Sequence[Logprob] = ()
    token_bytes: bytes = b""
    token_id: int = 0

    def message(self) -> engine_pb2.TokenLogprob:
        """Return it for the wire."""
        return engine_pb2.TokenLogprob(
            token=self.token,
            logprob=self.logprob,
            top=[each.message() for each in self.top],
            token_bytes=self.token_bytes,
            token_id=self.token_id,
        )


class Delta:
    """The new part of one choice, never the text so far.

    Args:
        text: The new text.
        index: Of the choice; 0 unless the engine sets ``takes_many``.
        finish_reason: With the last delta of a choice: ``stop``, ``length``, ``tool_calls`` or
            ``content_filter``. A choice without one ends with ``stop``.
        token_ids: The new tokens. Without them, each delta counts as one token.
        text_bytes: Instead of text, if a token may end inside a character.
        reasoning: New text of the model's reasoning.
        tool_calls: The new pieces of tool calls.
        logprobs: One for each new token.
        usage: Counts so far; the last one counts. If there is none, tokens are counted here.
        refusal: The new text of a refusal.
        stop_sequence: Which of the request's stop sequences has ended the choice.
        timing: With the first delta.
    """

    __slots__ = (
        "finish_reason",
        "index",
        "logprobs",
        "reasoning",
        "refusal",
        "stop_sequence",
        "text",
        "text_bytes",
        "timing",
        "token_ids",
        "tool_calls",
        "usage",
    )

    def __init__(
        self,
        text: str = "",
        *,
        index: int = 0,
        finish_reason: FinishReason | None = None,
        token_ids: Sequence[int] = (),
        text_bytes: bytes = b"",
        reasoning: str = "",
        tool_calls: Sequence[ToolCall] = (),
        logprobs: Sequence[Logprob] = (),
        usage: Usage | None = None,
        refusal: str = "",
        stop_sequence: str = "",
        timing: Timing | None = None,
    ) -> None:
        self.text = text
        self.index = index
        self.finish_reason = finish_reason
        self.token_ids = token_ids
        self.text_bytes = text_bytes
        self.reasoning = reasoning
        self.tool_calls = tool_calls
        self.logprobs = logprobs
        self.usage = usage
        self.refusal = refusal
        self.stop_sequence = stop_sequence
        self.timing = timing

    def __repr__(self) -> str:
        fields = ((name, getattr(self, name)) for name in sorted(self.__slots__))
        return f"Delta({', '.join(f'{name}={value!r}' for name, value in fields if value)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delta) and self.message() == other.message()

    __hash__ = None  # type: ignore[assignment]

    def message(self) -> engine_pb2.Delta:
        """Return it for the wire.

        Raises:
            ValueError: The finish reason has an unknown name, or a number is out of range.
        """
        # Fields that nearly every delta has come first; all others are only set if present.
        message = engine_pb2.Delta()
        if self.text:
            message.text = self.text
        if self.index:
            message.index = self.index
        if self.token_ids:
            message.token_ids.extend(self.token_ids)
        if self.finish_reason is not None:
            message.finish_reason = _finish_reason(self.finish_reason)
        if self.usage is not None:
            message.usage.CopyFrom(self.usage.message())
        if self.text_bytes:
            message.text_bytes = self.text_bytes
        if self.reasoning:
            message.reasoning = self.reasoning
        if self.tool_calls:
            message.tool_calls.extend(each.message() for each in self.tool_calls)
        if self.logprobs:
            message.logprobs.extend(each.message() for each in self.logprobs)
        if self.refusal:
            message.refusal = self.refusal
        if self.stop_sequence:
            message.stop_sequence = self.stop_sequence
        if self.timing is not None:
            message.timing.waited_s = self.timing.waited_s
            message.timing.prefill_s = self.timing.prefill_s
        return message


def _finish_reason(name: str) -> engine_pb2.FinishReason:
    found = FINISH_REASONS.get(name)
    if found is None:
        raise ValueError(f"finish_reason is {name!r}; use one of {', '.join(FINISH_REASONS)}")
    return found
