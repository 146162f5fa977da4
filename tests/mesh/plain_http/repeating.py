"""Handlers of POST of which some are marked as ones that may run again."""

from __future__ import annotations

import asyncio
import os

from fastapi import FastAPI
from starlette.requests import Request

import pyserve
from pyserve.config import DeploymentKeywords
from pyserve.handle import DeploymentHandle

api = FastAPI()
_OPTIONS: DeploymentKeywords = {
    "num_replicas": 2,
    "max_ongoing_requests": 20,
    "request_router_config": {"max_attempts": 3},
}


@pyserve.deployment
class Attempts:
    """Numbers the attempts of each request."""

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}

    def begin(self, key: str) -> int:
        self._attempts[key] = self._attempts.get(key, 0) + 1
        return self._attempts[key]

    def all(self) -> dict[str, int]:
        return self._attempts


class Repeating:
    """The first attempt never ends; later ones answer with their number."""

    def __init__(self, attempts: DeploymentHandle) -> None:
        self._attempts = attempts

    async def run(self, key: str) -> dict[str, int]:
        attempt = await self._attempts.begin.remote(key)
        if attempt == 1:
            await asyncio.Event().wait()
        return {"attempt": attempt, "pid": os.getpid()}


@pyserve.deployment(**_OPTIONS)
class Marked(Repeating):
    @pyserve.method(idempotent=True)
    async def __call__(self, request: Request) -> dict[str, int]:
        return await self.run((await request.json())["key"])


@pyserve.deployment(**_OPTIONS)
@pyserve.ingress(api)
class Api(Repeating):
    @api.post("/v1/{model}/completions")
    @pyserve.method(idempotent=True)
    async def complete(self, model: str, key: str) -> dict[str, int]:
        return await self.run(f"{model} {key}")

    @api.post("/v1/charge")
    async def charge(self, key: str) -> dict[str, int]:
        return await self.run(key)
