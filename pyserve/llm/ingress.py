"""Python routes for models, with the names of Ray Serve LLM.

The ingress serves OpenAI's API natively. Subclass ``OpenAiIngress`` to add routes to it, or to
change its routes. The methods of that class call the engines through their handles.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pyserve.api.handles.handle import DeploymentHandle
from pyserve.api.ingress import ingress
from pyserve.errors import UsageError
from pyserve.llm.adapters import names_in
from pyserve.llm.config import LLMConfig
from pyserve.llm.experimental import INGRESS_REPLICAS
from pyserve.llm.openai.failures import OpenAIHTTPException, answer_failures
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    ErrorResponse,
    ModelCard,
    ModelList,
    ScoreRequest,
    TokenizeCompletionRequest,
    TranscriptionRequest,
)
from pyserve.llm.request_router import PREFIX_AFFINITY, prefix_keys

try:
    from fastapi import FastAPI, Form
except ImportError:  # `make_fastapi_ingress` says so.
    FastAPI = Form = None  # type: ignore[assignment, misc]

_LOGGER = logging.getLogger(__name__)
# Streams of many clients pass through one replica.
_ONGOING_MAX = 2048

Route = Callable[[Any], Callable[[Any], Any]]
"""Takes the FastAPI application, and returns the decorator of a route."""

DEFAULT_ENDPOINTS: dict[str, Route] = {
    "models": lambda app: app.get("/v1/models", response_model=ModelList),
    "model_data": lambda app: app.get("/v1/models/{model:path}", response_model=ModelCard),
    "completions": lambda app: app.post("/v1/completions"),
    "chat": lambda app: app.post("/v1/chat/completions"),
    "embeddings": lambda app: app.post("/v1/embeddings"),
    "transcriptions": lambda app: app.post("/v1/audio/transcriptions"),
    "score": lambda app: app.post("/v1/score"),
    "tokenize": lambda app: app.post("/tokenize"),
    "detokenize": lambda app: app.post("/detokenize"),
}
"""The routes of ``OpenAiIngress``, by the names of its methods."""


class OpenAiIngress:
    """Calls engines by their handles, as the API of OpenAI does.

    Args:
        llm_deployments: Handles of the engines, by the ids of their models.
        model_cards: The descriptions of the models, by the same ids.
        lora_paths: The folders of their adapters.

    Raises:
        UsageError: The ids are not the same ones.
    """

    def __init__(
        self,
        llm_deployments: Mapping[str, DeploymentHandle[Any]],
        model_cards: Mapping[str, ModelCard],
        *,
        lora_paths: Mapping[str, str | None] | None = None,
    ) -> None:
        if set(llm_deployments) != set(model_cards):
            raise UsageError(
                f"llm_deployments has the models {sorted(llm_deployments)}, and model_cards has "
                f"{sorted(model_cards)}; give both the same ones"
            )
        self._llm_deployments = dict(llm_deployments)
        self._model_cards = dict(model_cards)
        self._lora_paths = dict(lora_paths or {})

    # --- routes -------------------------------------------------------------------------------

    async def models(self) -> ModelList:
        """Return the cards of all models, those of adapters in folders included."""
        cards: list[ModelCard] = []
        for model_id, card in self._model_cards.items():
            names = names_in(self._lora_paths.get(model_id))
            cards += [card, *(self._card_of_adapter(card, name) for name in names)]
        return ModelList(data=cards)

    async def model(self, model_id: str) -> ModelCard | None:
        """Return the card of a model, ``None`` if there is none."""
        if (card := self._model_cards.get(model_id)) is not None:
            return card
        base, _, adapter = model_id.rpartition(":")
        card = self._model_cards.get(base)
        is_there = card is not None and adapter in names_in(self._lora_paths.get(base))
        return self._card_of_adapter(card, adapter) if card is not None and is_there else None

    async def model_data(self, model: str) -> ModelCard:
        """Return the card of a model.

        Raises:
            OpenAIHTTPException: There is none.
        """
        if (card := await self.model(model)) is None:
            raise self._unknown(model)
        return card

    async def chat(self, body: ChatCompletionRequest, request: Request) -> Response:
        """Answer a chat completion."""
        return await self._process_llm_request(body, call_method="chat", raw_request=request)

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """Answer a completion."""
        return await self._process_llm_request(body, call_method="completions", raw_request=request)

    async def embeddings(self, body: EmbeddingRequest, request: Request) -> Response:
        """Answer a request for embeddings."""
        return await self._process_llm_request(body, call_method="embeddings", raw_request=request)

    async def transcriptions(
        self, body: Annotated[TranscriptionRequest, Form and Form()], request: Request
    ) -> Response:
        """Answer a request for the text of speech, which is a form."""
        if hasattr(body.file, "read"):
            body.file = await body.file.read()
        return await self._process_llm_request(
            body, call_method="transcriptions", raw_request=request
        )

    async def score(self, body: ScoreRequest, request: Request) -> Response:
        """Answer a request for scores."""
        return await self._process_llm_request(body, call_method="score", raw_request=request)

    async def tokenize(self, body: TokenizeCompletionRequest, request: Request) -> Response:
        """Answer a request for the tokens of a text."""
        return await self._process_llm_request(body, call_method="tokenize", raw_request=request)

    async def detokenize(self, body: DetokenizeRequest, request: Request) -> Response:
        """Answer a request for the text of tokens."""
        return await self._process_llm_request(body, call_method="detokenize", raw_request=request)

    # --- for the routes of a subclass ------------------------------------------------------------

    async def _process_llm_request(
        self, body: Any, call_method: str, raw_request: Request | None = None
    ) -> Response:
        answers = self._get_response(body=body, call_method=call_method, raw_request=raw_request)
        first = await anext(answers)
        if isinstance(first, ErrorResponse):
            raise OpenAIHTTPException.of(first)
        if not isinstance(first, list | str):
            await answers.aclose()
            # Keep only the fields that are set: content may be null, and a tool call has no index.
            is_chat = isinstance(first, ChatCompletionResponse)
            return JSONResponse(first.model_dump(exclude_unset=is_chat))
        return _Stream(_events(first, answers), media_type="text/event-stream")

    async def _get_response(
        self, *, body: Any, call_method: str, raw_request: Request | None = None
    ) -> Any:
        """Yield what the model's engine yields."""
        model_id = self._get_model_id(body.model)
        handle = self._handle(model_id)
        session = None if raw_request is None else raw_request.headers.get("x-session-id")
        if session:
            handle = handle.options(session_id=session)
        stream: Any = getattr(handle, call_method).remote(body)
        try:
            async for item in stream:
                yield item
        finally:
            stream.cancel()

    def _get_model_id(self, model: str | None) -> str:
        if model is None and len(self._model_cards) == 1:
            return next(iter(self._model_cards))
        if model is None:
            known = ", ".join(self._model_cards)
            raise OpenAIHTTPException(400, f"name one of the models {known}", param="model")
        if model in self._model_cards or model.rpartition(":")[0] in self._model_cards:
            return model
        raise self._unknown(model)

    def _handle(self, model_id: str) -> DeploymentHandle[Any]:
        base = model_id if model_id in self._model_cards else model_id.rpartition(":")[0]
        options: dict[str, Any] = {"stream": True}
        if base != model_id:
            options["multiplexed_model_id"] = model_id
        if self._model_cards[base].metadata.get(PREFIX_AFFINITY):
            options["cache_keys"] = prefix_keys
        return self._llm_deployments[base].options(**options)

    def _unknown(self, model: str) -> OpenAIHTTPException:
        known = ", ".join(self._model_cards)
        return OpenAIHTTPException(
            404, f"the model {model!r} does not exist; there is {known}", param="model"
        )

    def _card_of_adapter(self, card: ModelCard, name: str) -> ModelCard:
        return card.model_copy(update={"id": f"{card.id}:{name}"})

    @classmethod
    def get_deployment_options(
        cls, llm_configs: Sequence[LLMConfig] | None = None
    ) -> dict[str, Any]:
        """Return the options of its deployment, for ``Deployment.options``.

        It has as many replicas as the ``num_ingress_replicas`` of the models say, and scales to
        zero while it is idle if every model does.
        """
        configs = list(llm_configs or ())
        wanted = [each.experimental_configs.get(INGRESS_REPLICAS, 1) for each in configs]
        count = max(wanted, default=1)
        options: dict[str, Any] = {"max_ongoing_requests": _ONGOING_MAX}
        if configs and all(_goes_to_zero(each) for each in configs):
            scaling = {"min_replicas": 0, "max_replicas": count}
            return options | {"autoscaling_config": scaling}
        return options | {"num_replicas": count}


def make_fastapi_ingress(
    cls: type, *, endpoint_map: Mapping[str, Route] | None = None, app: Any = None
) -> type:
    """Return a class whose methods are routes of a FastAPI application.

    Where the ingress serves the models of the application by itself, its routes come first;
    ``build_openai_app`` leaves them to the class if that overrides one of ``OpenAiIngress``.

    Args:
        cls: Has the methods; it is not changed.
        endpoint_map: The routes by the names of the methods, such as
            ``{"count": lambda app: app.get("/count")}``; ``None``: those of ``OpenAiIngress``.
        app: The application that gets them; ``None``: a new one.

    Raises:
        UsageError: FastAPI is not installed, or a method is missing.
    """
    if FastAPI is None:
        raise UsageError("make_fastapi_ingress needs FastAPI: pip install fastapi python-multipart")
    if app is None:
        app = FastAPI()
    answer_failures(app)
    members: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    for name, route in (DEFAULT_ENDPOINTS if endpoint_map is None else endpoint_map).items():
        method = getattr(cls, name, None)
        if method is None:
            raise UsageError(f"endpoint_map has {name!r}, and {cls.__qualname__} no such method")
        members[name] = route(app)(method)
    made = type(cls.__name__, (cls,), members)
    made.__qualname__ = cls.__qualname__
    return ingress(app)(made)


def overrides_routes(cls: type) -> bool:
    """Return whether a subclass of ``OpenAiIngress`` does otherwise what that does."""
    own = {name for name in vars(OpenAiIngress) if not name.startswith("__")}
    own.discard("get_deployment_options")
    before = cls.__mro__[: cls.__mro__.index(OpenAiIngress)]
    return any(own & vars(each).keys() for each in before)


def _goes_to_zero(config: LLMConfig) -> bool:
    scaling = config.deployment_config.get("autoscaling_config")
    found = scaling.get("min_replicas") if isinstance(scaling, Mapping) else None
    return (found if found is not None else getattr(scaling, "min_replicas", None)) == 0


class _Stream(StreamingResponse):
    """Closes its iterator when the client has gone, wherever it was read from."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Starlette leaves that to the garbage collector, and the engine would run on.
            await cast("AsyncGenerator[str, None]", self.body_iterator).aclose()


async def _events(first: Any, others: Any) -> AsyncIterator[str]:
    async with aclosing(others):
        yield first if isinstance(first, str) else "".join(first)
        async for item in others:
            yield item if isinstance(item, str) else "".join(item)


__all__ = ["DEFAULT_ENDPOINTS", "OpenAiIngress", "make_fastapi_ingress"]
