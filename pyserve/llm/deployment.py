"""The deployments of Ray Serve LLM: an engine that is built from an ``LLMConfig``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from grpc import StatusCode
from pydantic import BaseModel, ValidationError

from pyserve.errors import Abort, UsageError
from pyserve.later import Later
from pyserve.llm import prefixes
from pyserve.llm.adapters import Adapters, names_in
from pyserve.llm.config import CloudMirrorConfig, LLMConfig
from pyserve.llm.deployment_options import check_group, options_of
from pyserve.llm.engine import Engine
from pyserve.llm.engine_names import make_engine
from pyserve.llm.errors import InvalidRequest
from pyserve.llm.fetching import fetched, fetched_to
from pyserve.llm.models import Model
from pyserve.llm.openai import calls
from pyserve.llm.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    ScoreRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TranscriptionRequest,
)
from pyserve.llm.request_router import affinity_of
from pyserve.llm.requests import EngineRequest

if TYPE_CHECKING:
    from pyserve.llm import requests
    from pyserve.llm.choices import Yielded
    from pyserve.llm.models import Load
    from pyserve.llm.results import CacheEvent, Embeddings, Vector

Body = TypeVar("Body", bound=BaseModel)


class LLMServer(Engine):
    """The engine of an ``LLMConfig``, as a deployment.

    It serves ``pyserve.llm.v1.Engine``, from which the ingress makes the HTTP APIs, and has the
    calls of OpenAI's API as methods for handles: ``chat``, ``completions`` and the others return
    asynchronous iterators, so they are called with ``handle.options(stream=True)``. The ingress
    does not call these methods, even if a subclass overrides them; overriding ``generate`` affects
    both ways.

    Args:
        llm_config: What is served; a mapping will do.
        engine_cls: A class of ``Engine`` in the place of the configured one.
        model_downloader: Not supported: adapters are fetched by their path.
    """

    async def __init__(  # type: ignore[misc]  # The replica awaits it.
        self,
        llm_config: LLMConfig,
        *,
        engine_cls: type[Engine] | None = None,
        model_downloader: object = None,
    ) -> None:
        self._set_up(llm_config, engine_cls, model_downloader)

    @classmethod
    def sync_init(
        cls,
        llm_config: LLMConfig,
        *,
        engine_cls: type[Engine] | None = None,
        model_downloader: object = None,
    ) -> Self:
        """Return an instance outside of a replica; ``await server.start()`` starts it."""
        server = cls.__new__(cls)
        server._set_up(llm_config, engine_cls, model_downloader)  # noqa: SLF001  # Of this class.
        return server

    def _set_up(
        self, llm_config: LLMConfig, engine_cls: type[Engine] | None, model_downloader: object
    ) -> None:
        if model_downloader is not None:
            raise UsageError(
                "model_downloader is not supported: adapters are fetched from the "
                "dynamic_lora_loading_path of the lora_config; leave it out"
            )
        self._llm_config = LLMConfig.model_validate(llm_config)
        self._engine_cls = engine_cls
        self._engine: Engine | None = None
        self._adapters: Adapters | None = None
        self._affinity = affinity_of(self._llm_config)
        self._models: list[Model] = []

    # --- of the replica -----------------------------------------------------------------------

    async def start(self) -> None:
        """Fetch the model's files, if they are in an object store, and start the engine.

        Raises:
            UsageError: The engine cannot be made; the text says what to install or to change.
            Exception: The engine cannot start.
        """
        config = self._llm_config
        callback = config.callback_config.make(config)
        await callback.run_callback("on_before_node_init")
        source = config.model_source
        if callback.ctx.run_init_node:
            await callback.run_callback("on_before_download_model_files_distributed")
            source = await _fetched(config)
        engine = self._engine = make_engine(config, source, self._engine_cls)
        await engine.start()
        if config.lora_config is not None and config.lora_config.dynamic_lora_loading_path:
            self._adapters = Adapters(config, engine)
        if self._affinity is not None and self._affinity.characters_max is not None:
            prefixes.limit(self._affinity.characters_max)
        # The base asks for it when it splits requests.
        self.takes_many = engine.takes_many
        self._models = [_card(config, *await engine.models())]
        await callback.run_callback("on_after_node_init")

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            UsageError: It has not started.
        """
        if self._engine is None:
            raise UsageError(f"the engine of {self._llm_config.model_id!r} has not started")
        return self._engine

    async def check_health(self) -> None:
        """Run the engine's own health check, if it has one.

        Raises:
            Exception: The engine is unhealthy.
        """
        check = getattr(self._engine, "check_health", None)
        if check is not None:
            await check()

    async def aclose(self) -> None:
        """Unload the adapters and end the engine."""
        if self._adapters is not None:
            await self._adapters.close()
        close = getattr(self._engine, "aclose", None)
        if close is not None:
            await close()

    async def llm_config(self) -> LLMConfig:
        """Return the configuration."""
        return self._llm_config

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Return the options of the deployment of a model, for ``Deployment.options``.

        Raises:
            OptionError: One is not allowed.
        """
        return options_of(llm_config)

    # --- of an engine -------------------------------------------------------------------------

    async def models(self) -> list[Model]:
        """Return the model, under its ``model_id``; none if Python routes serve it."""
        return [] if self._llm_config.is_hidden else self._models

    async def known_models(self) -> list[Model]:
        """Return the model, even if Python routes serve it."""
        return self._models

    def generate(self, request: requests.GenerateRequest) -> AsyncIterator[Yielded]:
        """Continue a prompt or a chat by the engine."""
        if self._affinity is not None:
            prefixes.report(prefixes.keys_of(request.message))
        if request.adapter and self._adapters is not None:
            return self._generate_with(self._adapters, request)
        # Return the engine's own generator, since a wrapper would cost time for each token.
        return self.engine.generate(request)

    async def _generate_with(
        self, adapters: Adapters, request: requests.GenerateRequest
    ) -> AsyncIterator[Yielded]:
        await adapters.use(request.adapter)
        deltas: Any = self.engine.generate(request)
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta

    async def embed(self, request: requests.EmbedRequest) -> Sequence[Vector] | Embeddings:
        """Return embeddings by the engine."""
        if request.adapter and self._adapters is not None:
            await self._adapters.use(request.adapter)
        return await self.engine.embed(request)

    def transcribe(self, request: requests.TranscribeRequest) -> AsyncIterator[Yielded]:
        """Write down what is said by the engine."""
        return self.engine.transcribe(request)

    async def load(self) -> Load:
        """Return what the engine has to do now."""
        return await self.engine.load()

    def cache_events(self) -> AsyncIterator[Sequence[CacheEvent]]:
        """Yield the changes of the engine's prefix cache."""
        return self.engine.cache_events()

    # --- for handles --------------------------------------------------------------------------
    # Coroutines that return iterators, as in Ray Serve LLM: `return await super().chat(request)`.

    async def chat(
        self, request: ChatCompletionRequest, raw_request_info: object = None
    ) -> AsyncIterator[Any]:
        """Return an iterator over the answer to a chat completion.

        Args:
            request: Streamed: each item is a list of events, as texts; otherwise there is one
                item, the ``ChatCompletionResponse``. A request that is refused gets an
                ``ErrorResponse``.
            raw_request_info: Ignored.
        """
        return calls.chat(self, self._name, _read(ChatCompletionRequest, request))

    async def completions(
        self, request: CompletionRequest, raw_request_info: object = None
    ) -> AsyncIterator[Any]:
        """Return an iterator over the answer to a completion; see ``chat``."""
        return calls.completions(self, self._name, _read(CompletionRequest, request))

    async def embeddings(
        self, request: EmbeddingRequest, raw_request_info: object = None
    ) -> AsyncIterator[Any]:
        """Return an iterator over one ``EmbeddingResponse``, or an ``ErrorResponse``."""
        return _once(calls.embeddings, self, self._name, _read(EmbeddingRequest, request))

    async def transcriptions(
        self, request: TranscriptionRequest, raw_request_info: object = None
    ) -> AsyncIterator[Any]:
        """Return an iterator over the text of speech; see ``chat``."""
        return calls.transcriptions(self, self._name, _read(TranscriptionRequest, request))

    # The service calls these methods too, with the requests of engines.

    async def score(self, request: Any, raw_request_info: object = None) -> Any:
        """Return an iterator over one ``ScoreResponse``, or an ``ErrorResponse``."""
        if isinstance(request, EngineRequest):
            return await self.engine.score(cast("requests.ScoreRequest", request))
        return _once(calls.score, self, self._name, _read(ScoreRequest, request))

    async def tokenize(self, request: Any, raw_request_info: object = None) -> Any:
        """Return an iterator over one ``TokenizeResponse``, or an ``ErrorResponse``."""
        if isinstance(request, EngineRequest):
            return await self.engine.tokenize(cast("requests.TokenizeRequest", request))
        given = request.model_dump() if isinstance(request, BaseModel) else request
        kind: Any = TokenizeChatRequest if "messages" in given else TokenizeCompletionRequest
        return _once(calls.tokenize, self, _read(kind, given))

    async def detokenize(self, request: Any, raw_request_info: object = None) -> Any:
        """Return an iterator over one ``DetokenizeResponse``, or an ``ErrorResponse``."""
        if isinstance(request, list):
            return await self.engine.detokenize(request)
        return _once(calls.detokenize, self, _read(DetokenizeRequest, request))

    # --- what some engines can do besides -----------------------------------------------------

    async def reset_prefix_cache(self) -> None:
        """Let the engine forget the prompts that it has had.

        Raises:
            Abort: The engine has no such method; so it is with those below.
        """
        await self._control("reset_prefix_cache")

    async def sleep(self, **kwargs: Any) -> None:
        """Let the engine give back its memory."""
        await self._control("sleep", **kwargs)

    async def wakeup(self, **kwargs: Any) -> None:
        """Let the engine take it again."""
        await self._control("wakeup", **kwargs)

    async def is_sleeping(self) -> bool:
        """Return whether the engine sleeps; one that cannot does not."""
        return self._can("is_sleeping") and bool(await self._control("is_sleeping"))

    async def pause(self, **kwargs: Any) -> None:
        """Let the engine generate nothing until ``resume``."""
        await self._control("pause", **kwargs)

    async def resume(self, **kwargs: Any) -> None:
        """Let the engine go on."""
        await self._control("resume", **kwargs)

    async def is_paused(self) -> bool:
        """Return whether the engine is paused; one that cannot be is not."""
        return self._can("is_paused") and bool(await self._control("is_paused"))

    async def start_profile(self) -> None:
        """Let the engine begin to record a profile."""
        await self._control("start_profile")

    async def stop_profile(self) -> None:
        """Let it end the profile."""
        await self._control("stop_profile")

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of all workers of the engine, and return what each returns."""
        found: list[Any] = await self._control(
            "collective_rpc", method=method, timeout=timeout, args=args, kwargs=kwargs
        )
        return found

    # --- inside -------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._llm_config.model_id

    def _can(self, method: str) -> bool:
        return callable(getattr(self.engine, method, None))

    async def _control(self, method: str, /, **kwargs: Any) -> Any:
        if not self._can(method):
            raise Abort(
                StatusCode.UNIMPLEMENTED,
                f"the engine {type(self.engine).__qualname__} has no method {method!r}",
            )
        return await getattr(self.engine, method)(**kwargs)


class DPServer(LLMServer):
    """An engine whose replicas hold a whole data parallel group each.

    ``engine_kwargs["data_parallel_size"]`` is the group's size; its engine sees to the ranks.
    ``num_replicas`` and ``autoscaling_config`` count groups, as in Ray Serve LLM.
    """

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Return the options of the deployment.

        Raises:
            UsageError: The group would span machines.
        """
        check_group(llm_config)
        return super().get_deployment_options(llm_config)


class _Split(Later):
    instead = (
        "serve prefill and decode by one engine, with build_openai_app: between engines, blocks of "
        "the KV cache travel by a connector such as NIXL, of which pyserve has none"
    )


class PDDecodeServer(_Split):
    """The replicas that decode, where prefill is done elsewhere."""


class PDPrefillServer(_Split):
    """The replicas that do the prefill."""


def _read(kind: type[Body], given: Any) -> Body:
    """Read a request that is a mapping; what is wrong with it is the caller's mistake."""
    if isinstance(given, kind):
        return given
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"]))
        raise InvalidRequest(first["msg"], param or None) from error


async def _once(answer: Callable[..., Awaitable[Any]], *arguments: Any) -> AsyncIterator[Any]:
    yield await answer(*arguments)


async def _fetched(config: LLMConfig) -> str:
    source = config.model_loading_config.model_source
    if isinstance(source, CloudMirrorConfig):
        for each in source.extra_files:
            await fetched_to(each.bucket_uri, each.destination_path)
    return await fetched(config.model_source)


def _card(config: LLMConfig, first: Model, *_others: Model) -> Model:
    lora = config.lora_config
    folder = None if lora is None else lora.dynamic_lora_loading_path
    return replace(
        first,
        id=config.model_id,
        aliases=(),
        max_model_len=first.max_model_len or config.max_request_context_length or 0,
        root=config.model_source,
        takes_adapters=first.takes_adapters or lora is not None,
        adapters=(*first.adapters, *names_in(folder)),
    )


__all__ = ["DPServer", "LLMServer", "PDDecodeServer", "PDPrefillServer"]
