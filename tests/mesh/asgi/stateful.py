"""Applications whose state cannot be copied: it belongs to the objects of this module."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI, Request
from starlette.responses import JSONResponse

import pyserve


class Pool:
    """Is mounted, and asked by a dependency: both have to be the one that the lifespan opens."""

    def __init__(self) -> None:
        self.is_open = False
        self.lock = threading.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await JSONResponse({"open": self.is_open})(scope, receive, send)

    def ask(self) -> bool:
        return self.is_open


pool = Pool()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.model = "loaded"
    pool.is_open = True
    yield


def make() -> FastAPI:
    made = FastAPI(lifespan=lifespan)
    made.state.lock = threading.Lock()
    made.mount("/pool", pool)

    @made.get("/state")
    async def state(request: Request, asked: bool = Depends(pool.ask)) -> list[Any]:
        own = request.app.state
        return [own.model, type(own.lock).__name__, asked, request.app in applications]

    return made


class Passing:
    """A middleware around the application, which becomes the application itself."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


api, rebound, wrapped_inside, nameless, built = applications = [make() for _ in range(5)]

named = pyserve.deployment(pyserve.ingress(api)()).bind()
same = api
rebound = pyserve.deployment(pyserve.ingress(rebound)()).bind()  # type: ignore[assignment, arg-type]
wrapped = pyserve.deployment(pyserve.ingress(Passing(wrapped_inside))()).bind()
of_no_name = pyserve.deployment(pyserve.ingress(applications[3])()).bind()
del nameless
of_a_lambda = pyserve.deployment(pyserve.ingress(lambda: built)()).bind()


def serve(app: Any) -> pyserve.Application:
    empty: type[object] = pyserve.ingress(app)()
    return pyserve.deployment(empty).bind()


def build(args: dict[str, str]) -> pyserve.Application:
    """Bind when the module has been imported, as builders with arguments do."""

    @pyserve.deployment
    @pyserve.ingress(api)
    class Local:
        pass

    return Local.bind() if args else serve(api)


grown = FastAPI()


def bind_grown() -> pyserve.Application:
    """Add a route that the module does not have when a replica imports it."""
    grown.get("/late")(late)
    return serve(grown)


async def late() -> str:
    return "late"
