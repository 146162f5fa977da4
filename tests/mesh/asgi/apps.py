"""A FastAPI application whose routes are methods, in front of deployments that it calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import (
    APIRouter,
    BackgroundTasks,
    FastAPI,
    Query,
    Request,
    WebSocket,
    WebSocketDisconnect,
)
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel
from starlette.middleware import Middleware

import pyserve
from pyserve.handle import DeploymentHandle

api = FastAPI(title="Frames")


class Settings(BaseModel):
    factor: int
    label: str = "none"


@pyserve.deployment
class Numbers:
    """Streams, and remembers which of its calls began and which were cancelled."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.cancelled: list[str] = []

    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    async def wait(self, name: str) -> None:
        self.began.append(name)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise

    async def which_began(self) -> list[str]:
        return self.began

    async def which_were_cancelled(self) -> list[str]:
        return self.cancelled


@pyserve.deployment
@pyserve.ingress(api)
class Frames:
    """The notebook's orchestrator in shape: handles in the constructor, routes as methods."""

    def __init__(self, numbers: DeploymentHandle) -> None:
        self.numbers = numbers
        self.factor = 2
        self.gate = asyncio.Event()
        self.endless_streams = 0
        self.patience = asyncio.Event()
        self.began: set[str] = set()
        self.finished: list[str] = []
        self.together = threading.Barrier(2)

    @api.post("/detect")
    async def detect(self, video_url: str, batch_size: Annotated[int, Query(gt=0)] = 20) -> Any:
        numbers = [each async for each in self.numbers.options(stream=True).count.remote(3)]
        return {"url": video_url, "frames": [self.factor * batch_size * each for each in numbers]}

    @api.put("/settings/{name}")
    async def change(self, name: str, settings: Settings) -> Settings:
        self.factor = settings.factor
        return Settings(factor=self.factor, label=f"{name} {settings.label}")

    @api.get("/blocking")
    async def blocking(self) -> dict[str, str]:
        time.sleep(0.05)  # noqa: ASYNC251  # As the guide has it: it holds the loop, and works.
        return {"message": "Processed (blocking)"}

    @api.get("/non-blocking")
    async def non_blocking(self) -> dict[str, str]:
        await asyncio.sleep(0.05)
        return {"message": "Processed (non-blocking)"}

    @api.get("/together")
    def meet(self) -> int:
        """Runs on a thread: two requests meet here."""
        return self.together.wait(20)

    @api.get("/gated")
    async def gated(self) -> StreamingResponse:
        """Yields the second piece when the first one has arrived."""

        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            await self.gate.wait()
            yield b"second"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @api.get("/items/{count}")
    async def items(self, count: int) -> StreamingResponse:
        """Yields without a wait between the items."""
        items = (f"data: {number}\n\n" for number in range(count))
        return StreamingResponse(items, headers={"x-accel-buffering": "no"})

    @api.api_route("/endless", methods=["GET", "HEAD"])
    async def endless(self) -> StreamingResponse:
        async def items() -> AsyncIterator[bytes]:
            self.endless_streams += 1
            try:
                while True:
                    yield b"more"
                    await asyncio.sleep(0.01)
            finally:
                self.endless_streams -= 1

        return StreamingResponse(items())

    @api.get("/endless-streams")
    async def count_endless_streams(self) -> int:
        return self.endless_streams

    @api.get("/open")
    async def open(self) -> None:
        self.gate.set()

    @api.get("/from-a-handle")
    async def from_a_handle(self) -> StreamingResponse:
        async def lines() -> AsyncIterator[str]:
            async for number in self.numbers.options(stream=True).count.remote(4):
                yield f"data: {number}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @api.get("/wait/{name}")
    async def wait(self, name: str) -> None:
        await self.numbers.wait.remote(name)

    @api.get("/unhurried/{name}")
    async def unhurried(self, request: Request, name: str) -> None:
        self.began.add(name)
        await request.body()
        await self.patience.wait()
        told = "was told" if await request.is_disconnected() else "was not told"
        self.finished.append(f"{name} {told}")

    @api.get("/billed/{name}")
    async def billed(self, name: str, later: BackgroundTasks) -> StreamingResponse:
        """Streams what a handle streams, and bills it in the end."""
        later.add_task(self.finished.append, f"{name} billed")
        items = self.numbers.options(stream=True).count.remote(1_000_000_000)
        return StreamingResponse(f"{each}\n" async for each in items)

    @api.get("/hurry")
    async def hurry(self) -> None:
        self.patience.set()

    @api.websocket("/watched/{name}")
    async def watched(self, websocket: WebSocket, name: str) -> None:
        await websocket.accept()
        try:
            while True:
                await websocket.send_text((await websocket.receive_text()).upper())
        except WebSocketDisconnect as left:
            self.finished.append(f"{name} {left.code}")

    @api.get("/log")
    async def log(self) -> dict[str, list[str]]:
        return {"began": sorted(self.began), "finished": self.finished}

    async def scaled(self, number: int) -> int:
        """No route: handles call it."""
        return self.factor * number

    @api.get("/level")
    async def level(self) -> dict[str, int]:
        return {"level": self.factor}

    @api.put("/level")  # type: ignore[no-redef]
    async def level(self, plus: int) -> dict[str, int]:  # noqa: F811
        return {"level": self.factor + plus}


later = APIRouter(prefix="/later")


@later.get("/function")
async def function() -> str:
    return "no class"


api.get("/later/method")(Frames.target.scaled)
api.include_router(later)


app = Frames.bind(Numbers.bind())


async def count(to: int) -> list[int]:
    """Ask the deployment below, as a function that has no instance can."""
    numbers = pyserve.get_deployment_handle("Numbers")
    return [number async for number in numbers.count.options(stream=True).remote(to)]


def build_counting() -> FastAPI:
    built = FastAPI()
    built.get("/count/{to}")(count)
    return built


counting = build_counting()


class Holder:
    def __init__(self, *children: DeploymentHandle) -> None:
        self._children = children


@pyserve.deployment
@pyserve.ingress(counting)
class Empty(Holder):
    """Its body is empty, and its base has no method."""


below = pyserve.deployment(pyserve.ingress(counting)()).bind(Numbers.bind())
built_below = pyserve.deployment(pyserve.ingress(build_counting)()).bind(
    Numbers.bind(), name="default", route_prefix="/"
)
empty = Empty.bind(Numbers.bind())


class Note(BaseModel):
    """Where an application of ``logged`` writes down what happens to it."""

    path: Path

    def add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{text}\n")


def logged(path: Path) -> pyserve.Application:
    """Return an application that says when it starts and stops, built in the replica."""
    note = Note(path=path)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        note.add("startup")
        yield {"note": note}
        note.add("shutdown")

    def build() -> FastAPI:
        built = FastAPI(lifespan=lifespan)
        built.get("/")(root)
        built.websocket("/ws")(hold)
        return built

    async def root(request: Request, tasks: BackgroundTasks) -> str:
        tasks.add_task(later, request.state.note)
        return "noted"

    async def later(note: Note) -> None:
        note.add("background begins")
        await asyncio.sleep(0.3)
        note.add("background ends")

    async def hold(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            await websocket.receive_text()
        except WebSocketDisconnect as left:
            note.add(f"socket {left.code}")

    class Logged:
        def __init__(self) -> None:
            note.add("constructor")

        async def aclose(self) -> None:
            note.add("aclose")

    return pyserve.deployment(pyserve.ingress(build)(Logged)).bind()


@asynccontextmanager
async def broken_lifespan(_: FastAPI) -> AsyncIterator[None]:
    raise RuntimeError("the model file is not there")
    yield


@pyserve.deployment
@pyserve.ingress(FastAPI(lifespan=broken_lifespan))
class Broken:
    pass


broken = Broken.bind()


class Stamped:
    """A middleware that says who it is in answers, and refuses what it does not like."""

    def __init__(self, app: Any, *, name: str) -> None:
        self._app = app
        self._name = name.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def stamped(message: Any) -> None:
            if message["type"] == "http.response.start":
                stamp = (b"x-stamped", self._name)
                message = {**message, "headers": [*message["headers"], stamp]}
            await send(message)

        if scope["type"] == "http" and scope["path"].endswith("/forbidden"):
            await PlainTextResponse("not that", 403)(scope, receive, stamped)
            return
        await self._app(scope, receive, stamped if scope["type"] == "http" else send)


@pyserve.deployment
class Sum:
    def __call__(self, numbers: list[int]) -> int:
        return sum(numbers)


plain = Sum.bind()


def middlewares() -> list[Middleware]:
    return [Middleware(Stamped, name="outer"), Middleware(Stamped, name="inner")]


def no_middlewares() -> list[Middleware]:
    raise LookupError("no middlewares today")


@asynccontextmanager
async def leaving_lifespan(_: FastAPI) -> AsyncIterator[None]:
    raise SystemExit("no model in this folder")
    yield


@pyserve.deployment
@pyserve.ingress(FastAPI(lifespan=leaving_lifespan))
class Leaving:
    pass


leaving = Leaving.bind()
