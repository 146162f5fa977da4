"""Requests, as engines read them: views of the messages of ``engine.proto``.

Fields that are expensive to read are read on first use, and then cached. ``message`` has all
fields.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyserve.llm.chats import (
    Json,
    messages_of,
    object_of,
    response_format_of,
    tool_choice_of,
    tools_of,
)
from pyserve.llm.errors import InvalidRequest
from pyserve.llm.v1 import engine_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Message(Protocol):
    model: str


Message = TypeVar("Message", bound=_Message)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. ``None``: the model's own default.

    Attributes:
        temperature: 0: always the likeliest token.
        top_p: Of the likeliest tokens as many as have this probability together.
        top_k: Of the likeliest tokens so many.
        min_p: Tokens that have at least this share of the likeliest one's probability.
        presence_penalty: For tokens that are there already.
        frequency_penalty: For tokens by how often they are there.
        repetition_penalty: A factor for tokens that are there already.
        seed: Of the random choices.
        logit_bias: Added to the logits of tokens, by their numbers.
        ignore_eos: The end-of-sequence token does not end a choice.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)
    ignore_eos: bool = False


_SEED_MAX = 2**63 - 1

_SAMPLING_FIELDS = tuple(
    name for name in Sampling.__dataclass_fields__ if name not in {"logit_bias", "ignore_eos"}
)


class EngineRequest(Generic[Message]):
    """The base of all requests.

    Args:
        message: As it came.
        model: The id of the model that it is for.
        adapter: The adapter's name; empty: none.

    Attributes:
        message: As it came.
        model: The id of the model, as ``Engine.models`` has it.
        adapter: The adapter's name; empty: none. Also ``pyserve.get_multiplexed_model_id()``, if
            the call has come through the ingress.
    """

    def __init__(self, message: Message, model: str = "", adapter: str = "") -> None:
        self.message = message
        self.model = model or message.model
        self.adapter = adapter

    @cached_property
    def extra(self) -> Json:
        """The fields that the API does not define.

        Raises:
            InvalidRequest: They are no JSON object.
        """
        return object_of(getattr(self.message, "other_json", ""), "the request's other fields")


class ChatRequest(EngineRequest[Message]):
    """A request whose input may be a chat."""

    @property
    def chat(self) -> engine_pb2.Chat | None:
        """The chat that is to be continued; ``None``: the request has a plain prompt."""
        message: Any = self.message
        return message.chat if message.HasField("chat") else None

    @cached_property
    def messages(self) -> list[Json]:
        """The messages of the chat in the format of OpenAI's API; empty for a plain prompt."""
        return [] if self.chat is None else messages_of(self.chat)

    @cached_property
    def tools(self) -> list[Json]:
        """The tools that the model may call, in the format of OpenAI's API."""
        return [] if self.chat is None else tools_of(self.chat)

    @property
    def tool_choice(self) -> str | Json | None:
        """``none``, ``required``, an object that names a tool, or ``None``: the model's choice."""
        return None if self.chat is None else tool_choice_of(self.chat)

    @cached_property
    def chat_template_kwargs(self) -> Json:
        """The client's arguments for the chat template."""
        text = "" if self.chat is None else self.chat.chat_template_kwargs_json
        return object_of(text, "chat_template_kwargs")


class GenerateRequest(ChatRequest[engine_pb2.GenerateRequest]):
    """A prompt, or a chat, that is to be continued.

    The class ``Engine`` splits requests, so there is one prompt and one choice, unless the engine
    says ``takes_many``.
    """

    @cached_property
    def request_id(self) -> str:
        """Its id: the caller's, or a new one."""
        return self.message.request_id or f"gen-{secrets.token_hex(8)}"

    @property
    def prompts(self) -> list[str | list[int]]:
        """The plain prompts, as texts or token ids; none: it is a chat."""
        return [_prompt(each) for each in self.message.prompts.prompts]

    @property
    def prompt(self) -> str | None:
        """The text of the plain prompt; ``None``: it is a chat, or has token ids."""
        first = next(iter(self.prompts), None)
        return first if isinstance(first, str) else None

    @property
    def prompt_token_ids(self) -> list[int] | None:
        """The token ids of the plain prompt; ``None``: it is a chat, or a text."""
        first = next(iter(self.prompts), None)
        return first if isinstance(first, list) else None

    @property
    def suffix(self) -> str:
        """The text after the one to insert; often empty."""
        return self.message.prompts.suffix

    @cached_property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        given = self.message.sampling
        bias = {token: _decimal(each) for token, each in given.logit_bias.items()}
        found = {
            name: _decimal(getattr(given, name))
            for name in _SAMPLING_FIELDS
            if given.HasField(name)
        }
        return Sampling(**found, logit_bias=bias, ignore_eos=given.ignore_eos)

    @property
    def n(self) -> int:
        """How many choices are wanted for each prompt, at least 1."""
        return self.message.n or 1

    @property
    def max_tokens(self) -> int | None:
        """How many tokens a choice may have; ``None``: as many as there is room for."""
        return self.message.max_tokens or None

    @cached_property
    def stop(self) -> list[str]:
        """Texts that end a choice. The ingress applies them too, so an engine may ignore them."""
        return list(self.message.stop)

    @cached_property
    def stop_token_ids(self) -> list[int]:
        """Tokens that end a choice."""
        return list(self.message.stop_token_ids)

    @property
    def logprobs(self) -> int | None:
        """How many alternatives of each token are wanted; ``None``: no log probabilities."""
        return self.message.top_logprobs if self.message.logprobs else None

    @cached_property
    def response_format(self) -> Json | None:
        """The required format of the answer, as in OpenAI's API; ``None``: text."""
        return response_format_of(self.message.response_format)

    @property
    def stream(self) -> bool:
        """Whether the client reads a stream; if not, fewer and longer deltas are cheaper."""
        return self.message.stream

    @property
    def user(self) -> str:
        """The end user of the request, as set by the client."""
        return self.message.user

    @property
    def priority(self) -> int:
        """Smaller ones come first."""
        return self.message.priority

    def one_of(self, prompt: int, choice: int) -> GenerateRequest:
        """Return the request for one choice of one prompt.

        Each choice has a seed of its own, so that they differ where the client gives one.
        """
        message = engine_pb2.GenerateRequest()
        message.CopyFrom(self.message)
        message.n = 1
        if message.HasField("prompts"):
            del message.prompts.prompts[prompt + 1 :], message.prompts.prompts[:prompt]
        if message.sampling.HasField("seed"):
            message.sampling.seed = _seed_of(message.sampling.seed, choice)
        message.request_id = f"{self.request_id}-{prompt * self.n + choice}"
        return GenerateRequest(message, self.model, self.adapter)


class EmbedRequest(EngineRequest[engine_pb2.EmbedRequest]):
    """Texts whose embeddings are wanted."""

    @cached_property
    def inputs(self) -> list[str | list[int]]:
        """The texts, or their token ids; at least one."""
        return [_prompt(each) for each in self.message.inputs]

    @property
    def dimensions(self) -> int | None:
        """The wanted length of the vectors; ``None``: the model's own length."""
        return self.message.dimensions or None


class ScoreRequest(EngineRequest[engine_pb2.ScoreRequest]):
    """Documents that are to be compared with queries."""

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """A query and a document for each score that is wanted.

        Raises:
            InvalidRequest: There are neither one query nor as many as documents.
        """
        queries: Sequence[str] = self.message.queries
        documents = self.message.documents
        if len(queries) == 1:
            queries = [queries[0]] * len(documents)
        if len(queries) != len(documents):
            raise InvalidRequest(
                f"there are {len(queries)} queries for {len(documents)} documents; send one query, "
                f"or one for each document"
            )
        return list(zip(queries, documents, strict=True))


class TokenizeRequest(ChatRequest[engine_pb2.TokenizeRequest]):
    """A text, or a chat, whose tokens are wanted."""

    @property
    def text(self) -> str:
        """The text; empty where it is a chat."""
        return self.message.text

    @property
    def add_special_tokens(self) -> bool:
        """Whether tokens that begin a text belong to it."""
        message = self.message
        return message.add_special_tokens if message.HasField("add_special_tokens") else True

    @property
    def return_token_strs(self) -> bool:
        """Whether the texts of the tokens are wanted."""
        return self.message.return_token_strs


class TranscribeRequest(EngineRequest[engine_pb2.TranscribeRequest]):
    """Speech to transcribe; ``message`` has its other fields."""

    @property
    def audio(self) -> bytes:
        """The file, as it was uploaded."""
        return self.message.audio


def _seed_of(seed: int, choice: int) -> int:
    """Return the seed of a choice; after the largest one comes the smallest."""
    return (seed + choice + _SEED_MAX + 1) % (2 * _SEED_MAX + 2) - _SEED_MAX - 1


def _decimal(value: Any) -> Any:
    """Return a number that travelled in 32 bits as the client wrote it: 0.7, not 0.699999."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _prompt(prompt: engine_pb2.Prompt) -> str | list[int]:
    if prompt.WhichOneof("prompt") == "token_ids":
        return list(prompt.token_ids.ids)
    return prompt.text
