"""A web application with a deployment behind it, and one that answers plain HTTP by itself."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import BackgroundTasks, Depends, FastAPI, WebSocket

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    print("the web application starts")
    yield
    print("the web application ends")


def checked(text: str) -> str:
    """Stand for a check that an endpoint depends on, which runs in a thread."""
    LOGGER.warning("dependency %s", text)
    return text


LOGGER = logging.getLogger("web")
api = FastAPI(lifespan=lifespan)


@pyserve.deployment
class Upper:
    async def __call__(self, text: str) -> str:
        LOGGER.warning("behind %s", text)
        return text.upper()


@pyserve.deployment
@pyserve.ingress(api)
class Web(echo_pb2_grpc.EchoServicer):
    def __init__(self, upper: pyserve.DeploymentHandle) -> None:
        self._upper = upper

    @api.get("/upper/{text}")
    async def upper(
        self, tasks: BackgroundTasks, text: Annotated[str, Depends(checked)]
    ) -> dict[str, str]:
        LOGGER.warning("endpoint %s", text)
        tasks.add_task(LOGGER.warning, "afterwards %s", text)
        place = pyserve.get_replica_context()
        return {"text": await self._upper.remote(text), "by": place.deployment}

    @api.get("/plain")
    def plain(self) -> str:
        LOGGER.warning("in a thread")
        return pyserve.get_replica_context().deployment

    @api.websocket("/chat")
    async def chat(self, socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            LOGGER.warning("chat %s", text)
            await socket.send_text(await self._upper.remote(text))

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=request.payload)


@pyserve.deployment
class Stopping:
    async def __call__(self, text: str) -> str:
        breakpoint()  # what the test is about
        return f"{text} by {pyserve.get_replica_context().deployment}"


app = Web.bind(Upper.bind())
stopping = Stopping.bind()
