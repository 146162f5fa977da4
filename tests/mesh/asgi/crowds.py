"""FastAPI applications whose ``def`` endpoints wait for each other, each on a thread."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, WebSocket
from starlette.requests import Request

import pyserve

api = FastAPI()


@pyserve.deployment
@pyserve.ingress(api)
class Crowd:
    def __init__(self) -> None:
        self._barriers: dict[int, threading.Barrier] = {}

    @api.get("/meet/{number}")
    def meet(self, number: int) -> int:
        """Wait until as many requests are here together; each is on a thread of its own."""
        self._barriers.setdefault(number, threading.Barrier(number)).wait(20)
        return os.getpid()

    @api.get("/threads")
    async def threads(self) -> float:
        return current_default_thread_limiter().total_tokens

    @api.get("/leave")
    async def leave(self) -> None:
        """Leave the process, in a task of its own, as endpoints behind middlewares are run."""

        async def work() -> None:
            sys.exit(3)

        async with asyncio.TaskGroup() as group:
            group.create_task(work())

    @api.websocket("/talk")
    async def talk(self, websocket: WebSocket) -> None:
        """Stay until the client leaves."""
        await websocket.accept()
        async for _ in websocket.iter_text():
            pass


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = 7
    yield


few = FastAPI(lifespan=lifespan)


@few.get("/threads")
async def threads() -> float:
    return current_default_thread_limiter().total_tokens


@pyserve.deployment
@pyserve.ingress(few)
class InItsLifespan:
    pass


alone = FastAPI()
alone.get("/threads")(threads)


@pyserve.deployment
@pyserve.ingress(alone)
class InItsConstructor:
    def __init__(self) -> None:
        current_default_thread_limiter().total_tokens = 7


@pyserve.deployment
class Plain:
    """No application: what Starlette runs for its answers, such as streams of ``def``, counts."""

    async def __call__(self, request: Request) -> float:
        return current_default_thread_limiter().total_tokens
