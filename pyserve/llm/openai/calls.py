"""The calls of OpenAI's API to an engine in this process, which ``LLMServer`` offers to handles."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from grpc import StatusCode

from pyserve.errors import Abort
from pyserve.llm.engine import Engine
from pyserve.llm.errors import InvalidRequest
from pyserve.llm.openai import requests
from pyserve.llm.openai.answers import DONE, Asked, ChatAnswer, CompletionAnswer, events, whole
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    DetokenizeResponse,
    EmbeddingRequest,
    EmbeddingResponse,
    ErrorInfo,
    ErrorResponse,
    ScoreRequest,
    ScoreResponse,
    TokenizeRequest,
    TokenizeResponse,
    TranscriptionRequest,
    TranscriptionResponse,
    UsageInfo,
)
from pyserve.llm.v1 import engine_pb2

# As the ingress answers them by HTTP.
_HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.DEADLINE_EXCEEDED: 408,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.CANCELLED: 499,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
}
_TOO_MANY, _CLIENTS_FAULT, _OWN_FAULT, _UNIMPLEMENTED = 429, 400, 499, 501
# The engine's methods take a context, as servicers do, and use none.
_CONTEXT: Any = None
Message = TypeVar("Message")
Answers = AsyncGenerator[Any, None]
"""Lists of events, or one answer as an object."""


def error_of(error: Abort) -> ErrorResponse:
    """Return the API's answer to what an engine has raised about a request."""
    status = _HTTP_STATUS.get(error.code, 500)
    kind = "invalid_request_error"
    if status == _TOO_MANY:
        kind = "rate_limit_error"
    elif status >= _OWN_FAULT and status != _UNIMPLEMENTED:
        kind = "server_error"
    param = error.param if isinstance(error, InvalidRequest) else None
    info = ErrorInfo(message=error.details, type=kind, param=param, code=status)
    return ErrorResponse(error=info)


def chat(engine: Engine, model: str, request: ChatCompletionRequest) -> Answers:
    """Return an iterator over the answer to a chat completion; closing it stops the engine.

    Args:
        engine: Who answers.
        model: The name in the answer where the request has none.
        request: Streamed: each item is a list with an event; otherwise there is one item, the
            ``ChatCompletionResponse``. A request that is refused has an ``ErrorResponse``.
    """
    asked = Asked(
        model=request.model or model,
        choices=request.n or 1,
        stop=_stop(request.stop),
        wants_usage=request.wants_usage,
        one_tool_call=request.parallel_tool_calls is False,
        wants_logprobs=bool(request.logprobs),
    )

    def ask() -> engine_pb2.GenerateRequest:
        return requests.generate_of_chat(request)

    return _generated(engine, ChatAnswer(asked), ask, stream=bool(request.stream))


def completions(engine: Engine, model: str, request: CompletionRequest) -> Answers:
    """Return an iterator over the answer to a completion; see ``chat``."""
    is_one = isinstance(request.prompt, str) or isinstance((request.prompt or [0])[0], int)
    asked = Asked(
        model=request.model or model,
        choices=(request.n or 1) * (1 if is_one else len(request.prompt)),
        stop=_stop(request.stop),
        wants_usage=request.wants_usage,
        wants_logprobs=request.logprobs is not None,
    )

    def ask() -> engine_pb2.GenerateRequest:
        return requests.generate_of_completion(request)

    return _generated(engine, CompletionAnswer(asked), ask, stream=bool(request.stream))


async def embeddings(
    engine: Engine, model: str, request: EmbeddingRequest
) -> EmbeddingResponse | ErrorResponse:
    """Return the embeddings of texts."""

    async def answer() -> EmbeddingResponse:
        found = await engine.Embed(requests.embed_of(request), _CONTEXT)
        data = [
            {"object": "embedding", "index": index, "embedding": _vector(request, each.values)}
            for index, each in enumerate(found.embeddings)
        ]
        usage = _used(found.usage)
        return EmbeddingResponse(model=request.model or model, data=data, usage=usage)

    return await _guarded(answer)


async def score(engine: Engine, model: str, request: ScoreRequest) -> ScoreResponse | ErrorResponse:
    """Return how well documents answer queries."""

    async def answer() -> ScoreResponse:
        found = await engine.Score(requests.score_of(request), _CONTEXT)
        data = [
            {"object": "score", "index": index, "score": each}
            for index, each in enumerate(found.scores)
        ]
        return ScoreResponse(model=request.model or model, data=data, usage=_used(found.usage))

    return await _guarded(answer)


async def tokenize(engine: Engine, request: TokenizeRequest) -> TokenizeResponse | ErrorResponse:
    """Return the tokens of a text or of a chat."""

    async def answer() -> TokenizeResponse:
        found = await engine.Tokenize(requests.tokenize_of(request), _CONTEXT)
        return TokenizeResponse(
            count=len(found.token_ids),
            max_model_len=found.max_model_len,
            tokens=list(found.token_ids),
            token_strs=list(found.token_strs) if request.return_token_strs else None,
        )

    return await _guarded(answer)


async def detokenize(
    engine: Engine, request: DetokenizeRequest
) -> DetokenizeResponse | ErrorResponse:
    """Return the text of tokens."""

    async def answer() -> DetokenizeResponse:
        found = await engine.Detokenize(requests.detokenize_of(request), _CONTEXT)
        return DetokenizeResponse(prompt=found.text)

    return await _guarded(answer)


async def transcriptions(engine: Engine, model: str, request: TranscriptionRequest) -> Answers:
    """Yield the text of speech; see ``chat``."""
    asked = Asked(model=request.model or model)
    answer = ChatAnswer(asked)
    try:
        deltas = engine.Transcribe(requests.transcribe_of(request), _CONTEXT)
        if request.stream:
            async with aclosing(events(answer, deltas)) as items:
                async for event in items:
                    yield [event.replace("chat.completion.chunk", "transcription.chunk", 1)]
        else:
            found = await whole(answer, deltas)
            yield TranscriptionResponse(text=found.choices[0].message.content or "")
    except Abort as error:
        yield error_of(error)


async def _generated(
    engine: Engine,
    answer: ChatAnswer | CompletionAnswer,
    ask: Callable[[], engine_pb2.GenerateRequest],
    *,
    stream: bool,
) -> Answers:
    has_begun = False
    try:
        deltas = engine.Generate(ask(), _CONTEXT)
        if not stream:
            yield await whole(answer, deltas)
            return
        async with aclosing(events(answer, deltas)) as items:
            async for event in items:
                has_begun = True
                yield [event]
    except Abort as error:
        found = error_of(error)
        # A client that has read events gets the error as one more event, as over HTTP.
        yield [f"data: {json.dumps(found.model_dump())}\n\n", DONE] if has_begun else found


async def _guarded(answer: Callable[[], Awaitable[Message]]) -> Message | ErrorResponse:
    try:
        return await answer()
    except Abort as error:
        return error_of(error)


def _stop(stop: str | list[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop or ())


def _vector(request: EmbeddingRequest, values: Any) -> list[float] | str:
    if request.encoding_format == "float":
        return list(values)
    found = array("f", values)
    if _IS_BIG_ENDIAN:
        found.byteswap()
    return base64.b64encode(found.tobytes()).decode()


_IS_BIG_ENDIAN = array("H", [1]).tobytes()[0] == 0


def _used(found: engine_pb2.Usage) -> UsageInfo:
    return UsageInfo(
        prompt_tokens=found.prompt_tokens, completion_tokens=0, total_tokens=found.prompt_tokens
    )
