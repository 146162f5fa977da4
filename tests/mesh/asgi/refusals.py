"""Deployments that do nothing about what becomes of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from fastapi import FastAPI, Request, WebSocket
from starlette.responses import PlainTextResponse

import pyserve
from pyserve.exceptions import DeploymentUnavailable
from pyserve.handle import DeploymentHandle
from services.echo import echo_pb2, echo_pb2_grpc

api = FastAPI()
own = FastAPI()
mounted = FastAPI()
own.mount("/below", mounted)


@own.exception_handler(DeploymentUnavailable)
async def answer_gone(_request: Request, _error: Exception) -> PlainTextResponse:
    return PlainTextResponse("it is gone", 418)


@pyserve.deployment(
    max_ongoing_requests=1,
    max_queued_requests=0,
    backpressure_config={"status_code": 429, "retry_after_s": 7},
)
class Busy:
    async def full(self) -> str:
        return "there was room"

    async def hold(self) -> AsyncIterator[str]:
        """Take the only slot; a message says that it is taken."""
        yield "held"
        await asyncio.sleep(60)


@pyserve.deployment
class Slow:
    async def late(self) -> None:
        await asyncio.sleep(60)


@pyserve.deployment
class Gone:
    async def gone(self) -> str:
        return "it is there"


class Calls:
    """The same calls for all of them."""

    def __init__(self, **handles: DeploymentHandle) -> None:
        self._calls = {
            "full": handles["busy"].full,
            "late": handles["slow"].options(timeout_s=0.2).late,
            "gone": handles["gone"].gone,
        }

    def call(self, what: str) -> Any:
        return self._calls[what].remote()


@pyserve.deployment
@pyserve.ingress(api)
class Web(Calls):
    @api.get("/async/{what}")
    async def ask(self, what: str) -> str:
        return str(await self.call(what))

    @api.get("/sync/{what}")
    def ask_blocking(self, what: str) -> str:
        return str(self.call(what).result())

    @api.get("/abort/{code}")
    async def abort(self, code: str) -> None:
        raise pyserve.Abort(grpc.StatusCode[code], "as it says", [("x-why", "asked")])

    @api.websocket("/abort/{code}")
    async def abort_talk(self, websocket: WebSocket, code: str) -> None:
        await websocket.accept()
        await self.abort(code)

    @api.websocket("/socket/{what}")
    async def talk(self, websocket: WebSocket, what: str) -> None:
        await websocket.accept()
        await websocket.send_text(str(await self.call(what)))


@pyserve.deployment
@pyserve.ingress(own)
class WithHandlers(Calls):
    @own.get("/{what}")
    async def ask(self, what: str) -> str:
        return str(await self.call(what))


@pyserve.deployment
class Plain(Calls):
    async def __call__(self, request: Request) -> str:
        return str(await self.call(request.query_params["what"]))


@pyserve.deployment
class Blocking(Calls):
    def __call__(self, request: dict[str, str]) -> str:
        return str(self.call(request["what"]).result())


@pyserve.deployment
class Servicer(echo_pb2_grpc.EchoServicer, Calls):
    def __init__(self, **handles: DeploymentHandle) -> None:
        Calls.__init__(self, **handles)

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=str(await self.call(request.payload.decode())).encode())


def children() -> dict[str, pyserve.Application]:
    """Return what they call, an application each; one of them has no replica."""
    gone: Any = Gone
    parked = pyserve.Deployment(gone.target, gone.settings.updated({"num_replicas": 0}))
    made: tuple[Any, ...] = (Busy, Slow, parked)
    return {f"refusals-{each.name.lower()}": each.bind() for each in made}


def parents() -> dict[str, pyserve.Application]:
    """Return the applications by name, when those that they call are there."""
    handles = {
        name.lower(): pyserve.get_deployment_handle(name, f"refusals-{name.lower()}")
        for name in ("Busy", "Slow", "Gone")
    }
    made: tuple[Any, ...] = (Web, WithHandlers, Plain, Blocking, Servicer)
    return {f"refusals-{each.name.lower()}": each.bind(**handles) for each in made}
