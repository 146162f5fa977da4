"""The base class of engines: the gRPC service `pyserve.llm.v1.Engine` as Python methods.

::

    @pyserve.deployment(max_ongoing_requests=256)
    class Parrot(pyserve.llm.Engine):
        async def generate(self, request):
            for word in request.messages[-1]["content"].split():
                yield word + " "
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import cached_property
from typing import Any, ClassVar, NoReturn, TypeVar

import grpc

from pyserve.api.context import get_replica_context
from pyserve.errors import Abort, KindError, NotInReplica
from pyserve.llm.choices import Completion, Yielded, close, completed, merged
from pyserve.llm.errors import EngineMistake, InvalidRequest, ModelNotFound
from pyserve.llm.models import Load as LoadNow
from pyserve.llm.models import Model, find_model
from pyserve.llm.requests import (
    EmbedRequest,
    EngineRequest,
    GenerateRequest,
    ScoreRequest,
    TokenizeRequest,
    TranscribeRequest,
)
from pyserve.llm.results import CacheEvent, Embeddings, Scores, Tokens, Vector, cache_message
from pyserve.llm.v1 import engine_pb2, engine_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]
Messages = AsyncGenerator[engine_pb2.Delta, None]
Request = TypeVar("Request", bound=EngineRequest[Any])

_CHOICES_MAX = 1024  # Of one request; arbitrary, since each has a task.
_ABORTED = "aborted by its request_id"
_OPTIONAL = ("embed", "score", "tokenize", "transcribe")


class Engine(engine_pb2_grpc.EngineServicer):
    """The base class of engines; a subclass implements ``generate`` or other methods.

    A call that ends early (its client has disconnected, its deadline has passed, it was aborted)
    closes the generator: ``GeneratorExit`` is raised at its ``yield``, or ``CancelledError`` at its
    ``await``. Release the resources of the request in a ``finally``.

    Attributes:
        takes_many: ``generate`` handles several prompts and choices at once, and sets the index of
            the choice in each delta. Otherwise it is called for each choice, concurrently.
    """

    takes_many: bool = False
    __pyserve_start__: ClassVar[str] = "start"  # See `types.START_ATTRIBUTE`.

    # --- what authors write -----------------------------------------------------------------

    async def start(self) -> None:
        """Prepare: load the model, start the engine. Runs before the first call comes.

        An exception ends the replica, and is reported to the user who deploys it.
        """

    def generate(self, request: GenerateRequest) -> AsyncIterator[Yielded]:  # noqa: ARG002
        """Continue a prompt or a chat; an asynchronous generator.

        Args:
            request: What to continue.
        """
        _lacks(self, "generate")

    async def embed(self, request: EmbedRequest) -> Sequence[Vector] | Embeddings:  # noqa: ARG002
        """Return one vector for each input."""
        _lacks(self, "embed")

    async def score(self, request: ScoreRequest) -> Sequence[float] | Scores:  # noqa: ARG002
        """Return one number for each of the request's pairs."""
        _lacks(self, "score")

    async def tokenize(self, request: TokenizeRequest) -> Sequence[int] | Tokens:  # noqa: ARG002
        """Return a text, or a chat by the model's template, as token ids."""
        _lacks(self, "tokenize")

    async def detokenize(self, token_ids: Sequence[int]) -> str:  # noqa: ARG002
        """Return the text of tokens."""
        _lacks(self, "detokenize")

    def transcribe(self, request: TranscribeRequest) -> AsyncIterator[Yielded]:  # noqa: ARG002
        """Transcribe speech; an asynchronous generator, like ``generate``."""
        _lacks(self, "transcribe")

    async def load(self) -> LoadNow:
        """Return the engine's current load."""
        _lacks(self, "load")

    def cache_events(self) -> AsyncIterator[Sequence[CacheEvent]]:
        """Yield the changes of the prefix cache from now on; the first batch has all of it."""
        _lacks(self, "cache_events")

    async def models(self) -> list[Model]:
        """Return the models that this engine serves; called after ``start``.

        An engine that does not override it has one model, with the name of the deployment.
        """
        return [Model(id=deployment_name(self), tasks=self.tasks())]

    async def known_models(self) -> list[Model]:
        """Return the models that requests may name; those of ``models``, unless some are hidden."""
        return await self.models()

    # --- what they may use ------------------------------------------------------------------

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """Return the tasks that the class has methods for, as ``Model.tasks`` has them."""
        generating = ("generate", "chat") if _has(cls, "generate") else ()
        return (*generating, *(name for name in _OPTIONAL if _has(cls, name)))

    async def abort(self, request_id: str) -> bool:
        """End the generations with a request's id; return whether there was one."""
        tasks = self._pyserve_running.get(request_id, ())
        for task in tasks:
            task.cancel(_ABORTED)
        return bool(tasks)

    # --- the service ------------------------------------------------------------------------

    async def Generate(
        self, request: engine_pb2.GenerateRequest, _context: Context
    ) -> AsyncIterator[engine_pb2.Delta]:
        view = await _resolved(self, GenerateRequest(request))
        with _abortable(self._pyserve_running, view.request_id):
            async with aclosing(_generated(self, view)) as messages:
                async for message in messages:
                    yield message

    async def Embed(
        self, request: engine_pb2.EmbedRequest, _context: Context
    ) -> engine_pb2.EmbedResponse:
        view = await _resolved(self, EmbedRequest(request))
        found = await self.embed(view)
        result = found if isinstance(found, Embeddings) else Embeddings(found)
        _check_count(self, "embed", len(result.values), len(view.inputs))
        return result.message()

    async def Score(
        self, request: engine_pb2.ScoreRequest, _context: Context
    ) -> engine_pb2.ScoreResponse:
        view = await _resolved(self, ScoreRequest(request))
        found = await self.score(view)
        result = found if isinstance(found, Scores) else Scores(found)
        _check_count(self, "score", len(result.values), len(view.pairs))
        return result.message()

    async def Tokenize(
        self, request: engine_pb2.TokenizeRequest, _context: Context
    ) -> engine_pb2.TokenizeResponse:
        found = await self.tokenize(await _resolved(self, TokenizeRequest(request)))
        return (found if isinstance(found, Tokens) else Tokens(found)).message()

    async def Detokenize(
        self, request: engine_pb2.DetokenizeRequest, _context: Context
    ) -> engine_pb2.DetokenizeResponse:
        text = await self.detokenize(list(request.token_ids))
        return engine_pb2.DetokenizeResponse(text=text)

    async def Transcribe(
        self, request: engine_pb2.TranscribeRequest, _context: Context
    ) -> AsyncIterator[engine_pb2.Delta]:
        view = await _resolved(self, TranscribeRequest(request))
        completion = Completion(_name_of(self, "transcribe"))
        with _abortable(self._pyserve_running, request.request_id):
            async with aclosing(completed(self.transcribe(view), completion)) as messages:
                async for message in messages:
                    yield message

    async def Abort(
        self, request: engine_pb2.AbortRequest, _context: Context
    ) -> engine_pb2.AbortResponse:
        return engine_pb2.AbortResponse(found=await self.abort(request.request_id))

    async def Models(
        self, _request: engine_pb2.ModelsRequest, _context: Context
    ) -> engine_pb2.ModelsResponse:
        models = await self.models()
        return engine_pb2.ModelsResponse(models=[each.message() for each in models])

    async def Load(
        self, _request: engine_pb2.LoadRequest, _context: Context
    ) -> engine_pb2.LoadResponse:
        return (await self.load()).message()

    async def CacheEvents(
        self, _request: engine_pb2.CacheEventsRequest, _context: Context
    ) -> AsyncIterator[engine_pb2.CacheEventBatch]:
        number = 0
        batches = self.cache_events()
        try:
            async for batch in batches:
                number += 1
                events = [cache_message(event) for event in batch]
                yield engine_pb2.CacheEventBatch(number=number, events=events)
        finally:
            await close(batches)

    # --- inside -----------------------------------------------------------------------------

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name in ("generate", "transcribe", "cache_events"):
            if inspect.iscoroutinefunction(vars(cls).get(name)):
                raise KindError(
                    f"{cls.__qualname__}.{name} returns, but its answer is a stream; write it with "
                    f"`yield`, as an asynchronous generator"
                )

    @cached_property
    def _pyserve_running(self) -> dict[str, set[asyncio.Task[Any]]]:
        # Not of a constructor: authors need not call that of this class.
        return defaultdict(set)


def deployment_name(engine: Engine) -> str:
    """Return the name of the deployment that an engine is; outside of one, of its class."""
    try:
        return get_replica_context().deployment
    except NotInReplica:
        return type(engine).__qualname__


# Functions rather than methods, so that they cannot collide with the attributes of subclasses.


def _generated(engine: Engine, view: GenerateRequest) -> Messages:
    prompts = view.prompts or [""]
    n = view.n
    if len(prompts) * n > _CHOICES_MAX:
        raise InvalidRequest(
            f"{len(prompts)} prompts with {n} choices each are too many; ask for at most "
            f"{_CHOICES_MAX} choices at once",
            "n",
        )
    if engine.takes_many or len(prompts) * n == 1:
        return _completed(engine, view, prompts, len(prompts) * n)
    return merged(
        [
            _completed(engine, view.one_of(prompt, choice), [prompts[prompt]], 1)
            for prompt in range(len(prompts))
            for choice in range(n)
        ],
        n,
    )


def _completed(
    engine: Engine, view: GenerateRequest, prompts: Sequence[str | list[int]], choices: int
) -> Messages:
    known = sum(len(each) for each in prompts if isinstance(each, list))
    completion = Completion(_name_of(engine, "generate"), choices, known)
    return completed(engine.generate(view), completion)


@contextmanager
def _abortable(running: dict[str, set[asyncio.Task[Any]]], request_id: str) -> Iterator[None]:
    task = asyncio.current_task()
    assert task is not None, "calls are tasks"
    running[request_id].add(task)
    try:
        yield
    except asyncio.CancelledError as error:
        if error.args != (_ABORTED,):
            raise
        task.uncancel()
        raise Abort(grpc.StatusCode.CANCELLED, f"{request_id} was aborted") from error
    finally:
        running[request_id].discard(task)
        if not running[request_id]:
            del running[request_id]


async def _resolved(engine: Engine, view: Request) -> Request:
    """Let a request name a model as ``known_models`` does."""
    models = await engine.known_models()
    model, view.adapter = find_model(view.model, models)
    if model is None:
        names = tuple(name for each in models for name in each.names())
        if not view.model:
            raise InvalidRequest(f"name one of the models {', '.join(names)}", "model")
        raise ModelNotFound(view.model, names)
    view.model = model.id
    return view


def _check_count(engine: Engine, method: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise EngineMistake(
            f"{_name_of(engine, method)} returned {found} results for {wanted} inputs; return "
            f"one for each, in their order"
        )


def _has(engine: type[Engine], method: str) -> bool:
    return getattr(engine, method) is not getattr(Engine, method)


def _name_of(engine: Engine, method: str) -> str:
    return f"{type(engine).__qualname__}.{method}"


def _lacks(engine: Engine, method: str) -> NoReturn:
    raise Abort(
        grpc.StatusCode.UNIMPLEMENTED,
        f"the engine {type(engine).__qualname__} has no method {method!r}",
    )
