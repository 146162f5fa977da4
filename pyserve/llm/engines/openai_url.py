"""An engine behind a URL: any server with OpenAI's API, also one that the replica starts.

::

    app = pyserve.deployment(pyserve.llm.OpenAIUrl).bind(
        command=["vllm", "serve", "Qwen/Qwen3-8B", "--port", "{port}"]
    )
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from grpc import StatusCode

from pyserve.config.engines import api_key
from pyserve.errors import Abort, OptionError
from pyserve.llm.chats import Json
from pyserve.llm.deltas import Delta
from pyserve.llm.engine import Engine
from pyserve.llm.engines.child import Child
from pyserve.llm.engines.http_client import HttpClient, Response, ServerGone, origin_of
from pyserve.llm.engines.openai_json import (
    Garbage,
    body_of,
    deltas_of,
    error_of,
    usage_of,
    vectors_of,
)
from pyserve.llm.engines.sse import EventReader
from pyserve.llm.models import Model
from pyserve.llm.requests import EmbedRequest, GenerateRequest
from pyserve.llm.results import Embeddings

_OK = 200
_DONE = "[DONE]"
_GARBAGE = (LookupError, TypeError, ValueError, AttributeError)


class OpenAIUrl(Engine):
    """Passes requests on to a server with OpenAI's API.

    A call that ends early closes its connection, which tells the server to stop generating.

    Args:
        base_url: The URL up to ``/v1``; optional with a ``command``.
        models: The names of models at the server, or a mapping from the names that clients use to
            those at the server. Empty: the models that the server lists when the replica starts.
        api_key_env: Name of the environment variable that has the key; ``None``: without a key.
        headers: Sent with each request.
        command: Starts the server as a child process of the replica; ``{port}`` in it is replaced
            by a free port.
        environment: Environment variables of that process.
        startup_timeout_s: How long the server may take until it answers.
        tasks: The tasks that the models support; see ``Model.tasks``.
        max_tokens_field: The server's name for the field ``max_tokens``; OpenAI's newer models
            require ``max_completion_tokens``.
    """

    takes_many = True

    def __init__(
        self,
        base_url: str | None = None,
        *,
        models: Sequence[str] | Mapping[str, str] = (),
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        startup_timeout_s: float = 600.0,
        tasks: Sequence[str] = ("generate", "chat"),
        max_tokens_field: str = "max_tokens",
    ) -> None:
        if base_url is None and not command:
            raise OptionError("OpenAIUrl needs a base_url, or the command of a server to start")
        self._base_url = base_url
        self._names = (
            dict(models) if isinstance(models, Mapping) else {each: each for each in models}
        )
        self._headers = {**(headers or {}), **_authorization(api_key_env)}
        self._command = tuple(command)
        self._environment = environment or {}
        self._startup_timeout_s = startup_timeout_s
        self._tasks = tuple(tasks)
        self._max_tokens_field = max_tokens_field
        self._child: Child | None = None
        self._opened: HttpClient | None = None
        self._models: list[Model] = []

    async def start(self) -> None:
        """Start the server if it is a child, and ask for its models."""
        if self._command:
            self._child = Child(self._command, self._environment)
            try:
                await self._child.ready(("/health", "/v1/models"), self._startup_timeout_s)
            except BaseException:
                await self._child.close()
                raise
            self._base_url = self._base_url or f"http://127.0.0.1:{self._child.port}/v1"
            self._base_url = self._base_url.replace("{port}", str(self._child.port))
        assert self._base_url is not None, "the constructor has seen to it"
        self._opened = HttpClient(origin_of(self._base_url), self._headers)
        listed = await self._listed()
        self._names = self._names or {each: each for each in listed}
        self._models = [
            Model(id=name, max_model_len=listed.get(there, 0), root=there, tasks=self._tasks)
            for name, there in self._names.items()
        ]

    async def _listed(self) -> dict[str, int]:
        """Return the server's models with their lengths; 0: not known."""
        try:
            status, body = await self._client.json("GET", "/models")
            if status != _OK:
                raise error_of(self._name, status, body)
            return {each["id"]: int(each.get("max_model_len") or 0) for each in body["data"]}
        except (ServerGone, Abort, *_GARBAGE):
            if self._names:  # Not every server lists them.
                return {}
            raise

    @property
    def _client(self) -> HttpClient:
        assert self._opened is not None, "it has started"
        return self._opened

    @property
    def _name(self) -> str:
        return f"the engine at {self._base_url}"

    async def models(self) -> list[Model]:
        """Return the models that were found at the start."""
        return self._models

    def served_name(self, request: GenerateRequest) -> str:
        """Return the server's name for the model of a request."""
        return self._names[request.model]

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        """Yield what the server streams."""
        body = body_of(request, max_tokens_field=self._max_tokens_field)
        body["model"] = self.served_name(request)
        path = "/completions" if request.chat is None else "/chat/completions"
        try:
            async with self._client.open("POST", path, body) as response:
                await self._check(response)
                async for chunk in self._chunks(response):
                    for delta in self._deltas(chunk):
                        yield delta
        except ServerGone as error:
            raise self._gone(error) from error

    async def _check(self, response: Response) -> None:
        if response.status == _OK:
            return
        raw = await response.read()
        try:
            body = json.loads(raw)
        except ValueError:
            body = raw.decode(errors="replace")[:200]
        raise error_of(self._name, response.status, body, response.headers)

    async def _chunks(self, response: Response) -> AsyncIterator[Json]:
        events = EventReader()
        async for piece in response.pieces():
            try:
                data = events.feed(piece)
                chunks = [json.loads(each) for each in data if each != _DONE]
            except ValueError as error:
                raise Garbage(self._name, piece) from error
            for chunk in chunks:
                yield chunk

    def _deltas(self, chunk: Any) -> list[Delta]:
        try:
            if "error" in chunk:
                raise error_of(self._name, _status_in(chunk["error"]), chunk)
            return list(deltas_of(chunk))
        except _GARBAGE as error:
            raise Garbage(self._name, chunk) from error

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Return the server's embeddings."""
        body: Json = {**request.extra, "model": self._names[request.model], "input": request.inputs}
        if request.dimensions is not None:
            body["dimensions"] = request.dimensions
        try:
            status, answer = await self._client.json("POST", "/embeddings", body)
        except ServerGone as error:
            raise self._gone(error) from error
        if status != _OK:
            raise error_of(self._name, status, answer)
        try:
            return Embeddings(vectors_of(answer, len(request.inputs)), usage_of(answer))
        except _GARBAGE as error:
            raise Garbage(self._name, answer) from error

    def _gone(self, error: ServerGone) -> Abort:
        return Abort(StatusCode.UNAVAILABLE, f"{self._name}: {error}")

    async def check_health(self) -> None:
        """Fail if the server that the replica has started has ended, so that it is replaced."""
        if self._child is not None:
            self._child.check()

    async def aclose(self) -> None:
        """Close its connections, and end the server that it has started."""
        if self._opened is not None:
            await self._opened.close()
        if self._child is not None:
            await self._child.close()


def _authorization(api_key_env: str | None) -> dict[str, str]:
    if api_key_env is None:
        return {}
    return {"authorization": f"Bearer {api_key(api_key_env)}"}


def _status_in(error: Any) -> int:
    """Return the status that an error in mid-stream names; 500 without one."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500
