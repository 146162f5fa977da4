"""Requests and answers of OpenAI's API as pydantic models, for calls of engines through handles.

The ingress reads and writes the same JSON without Python. Fields that these models do not define
are kept, and passed to the engine unchanged.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

Json: TypeAlias = dict[str, Any]


def _now() -> int:
    return int(time.time())


def new_id(prefix: str) -> str:
    """Return an id as answers have them, such as ``chatcmpl-…``."""
    return f"{prefix}-{secrets.token_hex(16)}"


class _Request(BaseModel):
    """A request; fields that its model does not define are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model: str | None = None
    request_id: str = Field(default_factory=lambda: new_id("req"))


class _Answer(BaseModel):
    """An answer; fields that its model does not define are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class _Sampled(_Request):
    """The fields that all requests for generated text have."""

    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = Field(default=None, ge=0)
    n: int | None = Field(default=1, ge=1)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stream: bool | None = False
    stream_options: Json | None = None
    response_format: Json | None = None
    priority: int = 0
    user: str | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether the stream must end with the usage."""
        return bool((self.stream_options or {}).get("include_usage"))


class ChatCompletionRequest(_Sampled):
    """The body of a chat completion."""

    messages: list[Json] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=0)
    logprobs: bool | None = False
    top_logprobs: int | None = Field(default=0, ge=0)
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template: str | None = None
    chat_template_kwargs: Json | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    @field_validator("messages", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        # What iterates once cannot be read by the replica too.
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            return value
        return [_with_lists(each) for each in value]


def _with_lists(message: Any) -> Any:
    if isinstance(message, BaseModel):
        message = message.model_dump(exclude_none=True)
    if not isinstance(message, Mapping):
        return message
    found = dict(message)
    for name in ("content", "tool_calls"):
        value = found.get(name)
        if isinstance(value, Iterable) and not isinstance(value, str | list):
            found[name] = list(value)
    return found


class CompletionRequest(_Sampled):
    """The body of a completion."""

    prompt: str | list[str] | list[int] | list[list[int]]
    suffix: str | None = None
    echo: bool | None = False
    logprobs: int | None = Field(default=None, ge=0)
    best_of: int | None = None


class UsageInfo(_Answer):
    """How many tokens were used."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    total_tokens: int = 0
    prompt_tokens_details: Json | None = None


class FunctionCall(_Answer):
    """The function that is called, and its arguments: JSON as the model has written it."""

    name: str | None = None
    arguments: str = ""


class ToolCall(_Answer):
    """A call of a tool, or of one in a stream the new pieces."""

    index: int | None = None
    id: str | None = None
    type: Literal["function"] | None = "function"
    function: FunctionCall


class ChatMessage(_Answer):
    """The message of a choice."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)


class ChatCompletionResponseChoice(_Answer):
    """A choice of a chat completion."""

    index: int
    message: ChatMessage
    logprobs: Json | None = None
    finish_reason: str | None = "stop"


class ChatCompletionResponse(_Answer):
    """The answer to a chat completion that is not streamed."""

    id: str = Field(default_factory=lambda: new_id("chatcmpl"))
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(default_factory=_now)
    model: str
    choices: list[ChatCompletionResponseChoice]
    usage: UsageInfo


class DeltaMessage(_Answer):
    """The new part of a message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)


class ChatCompletionResponseStreamChoice(_Answer):
    """The new part of a choice of a chat completion."""

    index: int
    delta: DeltaMessage
    logprobs: Json | None = None
    finish_reason: str | None = None


class ChatCompletionStreamResponse(_Answer):
    """One event of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int = Field(default_factory=_now)
    model: str
    choices: list[ChatCompletionResponseStreamChoice]
    usage: UsageInfo | None = None


class CompletionResponseChoice(_Answer):
    """A choice of a completion, or the new part of one."""

    index: int
    text: str
    logprobs: Json | None = None
    finish_reason: str | None = None


class CompletionResponse(_Answer):
    """The answer to a completion that is not streamed."""

    id: str = Field(default_factory=lambda: new_id("cmpl"))
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=_now)
    model: str
    choices: list[CompletionResponseChoice]
    usage: UsageInfo


class CompletionStreamResponse(_Answer):
    """One event of a streamed completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(default_factory=_now)
    model: str
    choices: list[CompletionResponseChoice]
    usage: UsageInfo | None = None


class EmbeddingRequest(_Request):
    """The body of a request for embeddings."""

    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None


class EmbeddingResponse(_Answer):
    """Embeddings in the order of the inputs; each a list of numbers, or base64 of float32."""

    id: str = Field(default_factory=lambda: new_id("embd"))
    object: Literal["list"] = "list"
    created: int = Field(default_factory=_now)
    model: str
    data: list[Json]
    usage: UsageInfo


class ScoreRequest(_Request):
    """The body of a request for scores: one query for all documents, or one for each."""

    text_1: str | list[str]
    text_2: str | list[str]


class ScoreResponse(_Answer):
    """Scores in the order of the documents."""

    id: str = Field(default_factory=lambda: new_id("score"))
    object: Literal["list"] = "list"
    created: int = Field(default_factory=_now)
    model: str
    data: list[Json]
    usage: UsageInfo


class TokenizeCompletionRequest(_Request):
    """A text whose tokens are wanted."""

    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(_Request):
    """A chat whose tokens are wanted."""

    messages: list[Json] = Field(min_length=1)
    tools: list[Json] | None = None
    add_special_tokens: bool = False
    return_token_strs: bool | None = False


TokenizeRequest: TypeAlias = TokenizeCompletionRequest | TokenizeChatRequest


class TokenizeResponse(_Answer):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(_Request):
    """Tokens whose text is wanted."""

    tokens: list[int]


class DetokenizeResponse(_Answer):
    """The text of tokens."""

    prompt: str


class TranscriptionRequest(_Request):
    """Speech that is to be written down; ``file`` is the audio file's bytes."""

    model_config = ConfigDict(extra="allow", protected_namespaces=(), arbitrary_types_allowed=True)

    file: Any
    language: str | None = None
    prompt: str = ""
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: float | None = None
    timestamp_granularities: list[Literal["word", "segment"]] = Field(default_factory=list)
    stream: bool | None = False


class TranscriptionResponse(_Answer):
    """The text of speech."""

    text: str


class TranscriptionStreamResponse(_Answer):
    """One event of a streamed transcription."""

    id: str
    object: Literal["transcription.chunk"] = "transcription.chunk"
    created: int = Field(default_factory=_now)
    model: str
    choices: list[Json]


class ErrorInfo(_Answer):
    """The description of an error; ``code`` is the HTTP status."""

    message: str
    type: str
    param: str | None = None
    code: int


class ErrorResponse(_Answer):
    """The answer to a request that failed."""

    error: ErrorInfo


class ModelCard(_Answer):
    """A model that can be asked for."""

    id: str
    object: Literal["model"] = "model"
    owned_by: str = "pyserve"
    permission: list[str] = Field(default_factory=list)
    metadata: Json = Field(default_factory=dict)


class ModelList(_Answer):
    """All of them."""

    data: list[ModelCard]
    object: Literal["list"] = "list"
