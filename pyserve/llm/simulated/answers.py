"""The answers of the simulated engine, each computed in full when its request arrives. Pure.

A request can control its answer with the field ``simulated``, an object with fields of ``Wishes``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b

from pyserve.llm.chats import Json
from pyserve.llm.deltas import Delta, FinishReason, Logprob, ToolCall
from pyserve.llm.errors import InvalidRequest
from pyserve.llm.requests import GenerateRequest
from pyserve.llm.simulated.language import (
    babble,
    bytes_of,
    instance_of,
    logprob_of,
    text_of,
    tokens_of,
)

_REASONING_TOKENS = {"minimal": 4, "low": 8, "medium": 16, "high": 32}
_ALTERNATIVES_MAX = 20


@dataclass(frozen=True, slots=True)
class Wishes:
    """The properties that a request can set for its own answer.

    Attributes:
        tokens: How long the text is; ``None``: as the engine's option says.
        text: The text itself.
        reasoning_tokens: How long the reasoning before it is; ``None``: by ``reasoning_effort``.
        fail_after: The engine fails after so many tokens; ``None``: it does not.
    """

    tokens: int | None = None
    text: str | None = None
    reasoning_tokens: int | None = None
    fail_after: int | None = None


def wishes_of(extra: Json) -> Wishes:
    """Return the properties that a request sets for its own answer.

    Raises:
        InvalidRequest: A property is unknown, or has the wrong type.
    """
    given = extra.get("simulated", {})
    kinds = {"tokens": int, "text": str, "reasoning_tokens": int, "fail_after": int}
    if not isinstance(given, dict) or not given.keys() <= kinds.keys():
        names = ", ".join(field.name for field in fields(Wishes))
        raise InvalidRequest(f"this has to be an object with some of {names}", "simulated")
    for name, value in given.items():
        if type(value) is not kinds[name]:
            raise InvalidRequest(f"use {kinds[name].__name__}", f"simulated.{name}")
    return Wishes(**given)


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens of one kind.

    Attributes:
        kind: ``reasoning``, ``text`` or ``tool``.
        tokens: Their numbers.
        tool: The name of the tool that is called.
        call: The number of the call.
    """

    kind: str
    tokens: Sequence[int]
    tool: str = ""
    call: int = 0


class Answer:
    """An answer, token by token.

    Args:
        parts: What it has, in order.
        finish_reason: How it ends, if it is not cut.
        tokens_max: Where it is cut; ``None``: nowhere.
        seed: Of the ids of its tool calls.
        logprobs: How many alternatives of each token are wanted; ``None``: no log probabilities.

    Attributes:
        tokens: All of them.
        finish_reason: How it ends.
        reasoning_tokens: How many of them are reasoning.
        texts: What each token adds, where all of them are plain text; ``None``: see ``between``.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        finish_reason: FinishReason,
        tokens_max: int | None,
        seed: bytes,
        logprobs: int | None,
    ) -> None:
        self.tokens = [token for part in parts for token in part.tokens][:tokens_max]
        whole = sum(len(part.tokens) for part in parts)
        self.finish_reason: FinishReason = finish_reason if len(self.tokens) == whole else "length"
        self.reasoning_tokens = sum(len(each.tokens) for each in parts if each.kind == "reasoning")
        self._parts = parts
        self._seed = seed.hex()
        self._logprobs = logprobs
        self.texts = None
        if logprobs is None and [each.kind for each in parts] == ["text"]:
            self.texts = _texts(self.tokens)

    def between(self, start: int, end: int) -> Iterator[Delta]:
        """Yield the deltas of some of its tokens, one for each part.

        Args:
            start: The first token.
            end: The one after the last.
        """
        first = 0
        for part in self._parts:
            after = first + len(part.tokens)
            if start < after and first < end:
                chosen = part.tokens[max(0, start - first) : end - first]
                delta = self._delta(part, chosen, begins=start <= first)
                if self._logprobs is not None and part.kind == "text":
                    place = max(start, first)
                    delta.logprobs = [
                        _logprob(token, place + offset, self._logprobs)
                        for offset, token in enumerate(chosen)
                    ]
                yield delta
            first = after

    def _delta(self, part: Part, tokens: Sequence[int], *, begins: bool) -> Delta:
        raw = b"".join(map(bytes_of, tokens))
        if part.kind == "reasoning":
            return Delta(reasoning=raw.decode(errors="replace"))
        if part.kind == "tool":
            call = ToolCall(part.call, arguments=raw.decode(errors="replace"))
            if begins:
                call.id, call.name = f"call_{self._seed}{part.call}", part.tool
            return Delta(tool_calls=[call])
        try:
            return Delta(raw.decode())
        except UnicodeDecodeError:  # Some token ends inside of a character.
            return Delta(text_bytes=raw)


def _texts(tokens: Sequence[int]) -> list[str] | None:
    try:
        return [bytes_of(token).decode() for token in tokens]
    except UnicodeDecodeError:  # Some token ends inside of a character.
        return None


def _logprob(token: int, place: int, alternatives: int) -> Logprob:
    found = _single(token, place)
    others = babble(token.to_bytes(4, "big"), min(alternatives, _ALTERNATIVES_MAX))
    found.top = sorted(
        [_single(token, place), *(_single(each, place) for each in others)][:alternatives],
        key=lambda each: -each.logprob,
    )
    return found


def _single(token: int, place: int) -> Logprob:
    raw = bytes_of(token)
    return Logprob(text_of([token]), logprob_of(token, place), token_bytes=raw, token_id=token)


def answer_to(
    request: GenerateRequest,
    prompt: Sequence[int],
    wishes: Wishes,
    tokens_default: int,
    room: int,
) -> Answer:
    """Return the answer to a request.

    Args:
        request: One choice of it.
        prompt: The tokens of its prompt.
        wishes: What it says of its answer.
        tokens_default: How long a text is without a wish.
        room: How long it may be; a longer answer is cut to one token more than that.
    """
    sampling = request.sampling
    by_chance = request.request_id if sampling.seed is None else str(sampling.seed)
    spread = "" if sampling.temperature == 0 else by_chance
    raw = b"".join(token.to_bytes(4, "big") for token in prompt) + spread.encode()
    seed = blake2b(raw, digest_size=8).digest()
    parts = _reasoning(request, wishes, seed, room)
    calls = [] if wishes.text is not None else called_tools(request)
    for number, tool in enumerate(calls):
        arguments = json.dumps(instance_of(tool.get("parameters", {"type": "object"})))
        parts.append(Part("tool", tokens_of(arguments), tool["name"], number))
    if not calls:
        parts.append(Part("text", _text(request, wishes, seed, tokens_default, room)))
    return Answer(
        parts, "tool_calls" if calls else "stop", request.max_tokens, seed, request.logprobs
    )


def _reasoning(request: GenerateRequest, wishes: Wishes, seed: bytes, room: int) -> list[Part]:
    effort = "" if request.chat is None else request.chat.reasoning_effort
    tokens = wishes.reasoning_tokens
    if tokens is None:
        tokens = _REASONING_TOKENS.get(effort, 0)
    return [Part("reasoning", babble(seed + b"reasoning", min(tokens, room + 1)))] if tokens else []


def _text(
    request: GenerateRequest, wishes: Wishes, seed: bytes, tokens_default: int, room: int
) -> list[int]:
    if wishes.text is not None:
        return tokens_of(wishes.text)
    form = request.response_format
    if form is not None and form["type"] == "json_object":
        return tokens_of(json.dumps({"answer": text_of(babble(seed, 4))}))
    if form is not None and form["type"] == "json_schema":
        return tokens_of(json.dumps(instance_of(form["json_schema"]["schema"])))
    wanted = wishes.tokens
    if wanted is None:
        wanted = tokens_default
        if request.sampling.ignore_eos and request.max_tokens is not None:
            wanted = request.max_tokens
    return babble(seed, min(max(1, wanted), room + 1))


def called_tools(request: GenerateRequest) -> list[Json]:
    """Return the functions that the answer calls.

    A tool is called if the request demands it, or if the user has just written its name.
    """
    choice = request.tool_choice
    if not request.tools or choice == "none":
        return []
    functions = [each["function"] for each in request.tools if each["type"] == "function"]
    if isinstance(choice, dict):
        return [each for each in functions if each["name"] == choice["function"]["name"]][:1]
    last = request.messages[-1]
    text = last["content"] if last["role"] == "user" else ""
    named = [each for each in functions if isinstance(text, str) and each["name"] in text]
    if not named and choice == "required":
        named = functions[:1]
    chat = request.chat
    assert chat is not None, "there are tools"
    wants_one = chat.HasField("parallel_tool_calls") and not chat.parallel_tool_calls
    return named[:1] if wants_one else named
