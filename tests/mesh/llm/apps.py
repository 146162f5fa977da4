"""Engines that do what the last message of a chat says, for the ways to them and back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pyserve
from pyserve.api.handles.handle import DeploymentHandle
from pyserve.llm import Delta, Engine, InvalidRequest, Model
from pyserve.llm.requests import GenerateRequest
from tests.mesh.plain_http.apps import Ledger

PLACES = 4


@pyserve.deployment(max_ongoing_requests=PLACES)
class Scripted(Engine):
    """Yields the words of the last message, and obeys those that are commands.

    ``hold KEY`` goes on until it is closed, and writes to the ledger when it begins and ends.
    """

    def __init__(self, ledger: DeploymentHandle, *names: str) -> None:
        self._ledger = ledger
        self._names = names

    async def models(self) -> list[Model]:
        first, *others = self._names
        return [
            Model(first, aliases=(f"{first}-latest",), takes_adapters=True, max_model_len=64),
            *map(Model, others),
        ]

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Delta]:
        words = iter(str(request.messages[-1]["content"]).split())
        for word in words:
            if word == "hold":
                async for delta in self._hold(next(words)):
                    yield delta
            elif word == "refuse":
                raise InvalidRequest("the engine refuses it")
            elif word == "break":
                raise RuntimeError("the engine is broken")
            elif word == "exit":
                raise SystemExit(3)
            elif word == "model":
                yield Delta(f"{request.model}/{request.adapter} ")
            elif word == "wait":
                await self._ledger.until.remote(next(words), "go on")
            elif word == "long":
                yield Delta("x" * int(next(words)))
            elif word == "count":
                for number in itertools.islice(itertools.count(), int(next(words))):
                    yield Delta(f"{number} ")
            else:
                yield Delta(f"{word} ")

    async def _hold(self, key: str) -> AsyncIterator[Delta]:
        try:
            await self._ledger.note.remote(key, "began")
            for number in itertools.count():
                yield Delta(f"{number} ")
                await asyncio.sleep(0.01)  # As a step of a model takes a while.
        finally:
            await self._ledger.note.options(detached=True).remote(key, "closed")


@pyserve.deployment
class Page:
    """What an application with engines answers besides."""

    def __init__(self, *engines: DeploymentHandle) -> None:
        self._engines = engines

    async def __call__(self) -> str:
        return "a page"


ledger = Ledger.bind()
app = Page.bind(
    Scripted.options(name="First").bind(ledger, "alpha", "beta"),
    Scripted.options(name="Second").bind(ledger, "gamma"),
)
