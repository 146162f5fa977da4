"""Applications that say how large a field of a request's head was."""

from __future__ import annotations

import grpc
from fastapi import FastAPI, Request, WebSocket

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

api = FastAPI()


@api.get("/")
async def size(request: Request) -> int:
    """Return the size of the cookie."""
    return len(request.headers["cookie"])


@api.websocket("/talk")
async def talk(websocket: WebSocket) -> None:
    """Say the size of the cookie."""
    await websocket.accept()
    await websocket.send_text(str(len(websocket.headers["cookie"])))
    await websocket.close()


@pyserve.deployment
@pyserve.ingress(api)
class Web:
    """Takes HTTP and WebSockets."""


@pyserve.deployment
class Echo(echo_pb2_grpc.EchoServicer):
    """Takes gRPC."""

    async def Echo(
        self,
        request: echo_pb2.EchoRequest,
        context: grpc.aio.ServicerContext[echo_pb2.EchoRequest, echo_pb2.EchoReply],
    ) -> echo_pb2.EchoReply:
        """Return the size of a field of the metadata."""
        metadata = dict(context.invocation_metadata() or ())
        return echo_pb2.EchoReply(payload=str(len(metadata["cookie"])).encode())


web = Web.bind()
echo = Echo.bind()
