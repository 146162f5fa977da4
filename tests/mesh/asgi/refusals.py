"""Deployments that do nothing about what becomes of their calls."""

from __future__ import annotations

import asyncio
import os
from typing import Any

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

    async def hold(self) -> None:
        await asyncio.sleep(60)


@pyserve.deployment
class Broken:
    async def gone(self) -> None:
        os._exit(1)

    async def late(self) -> None:
        await asyncio.sleep(60)


class Calls:
    """The same calls for all of them."""

    def __init__(self, busy: DeploymentHandle, broken: DeploymentHandle) -> None:
        self.busy, self.broken = busy, broken

    def call(self, what: str) -> Any:
        if what == "full":
            return self.busy.full.remote()
        timeout_s = 0.2 if what == "late" else None
        return getattr(self.broken.options(timeout_s=timeout_s), what).remote()


@pyserve.deployment
@pyserve.ingress(api)
class Web(Calls):
    @api.get("/async/{what}")
    async def ask(self, what: str) -> str:
        return str(await self.call(what))

    @api.get("/sync/{what}")
    def ask_blocking(self, what: str) -> str:
        return str(self.call(what).result())

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
    def __init__(self, busy: DeploymentHandle, broken: DeploymentHandle) -> None:
        Calls.__init__(self, busy, broken)

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=str(await self.call(request.payload.decode())).encode())


def parents() -> dict[str, pyserve.Application]:
    """Return the applications by name; the deployments that they call are one application each."""
    busy = pyserve.get_deployment_handle("Busy", "refusals-busy")
    broken = pyserve.get_deployment_handle("Broken", "refusals-broken")
    made: tuple[Any, ...] = (Web, WithHandlers, Plain, Blocking, Servicer)
    return {f"refusals-{each.name.lower()}": each.bind(busy, broken) for each in made}
