"""What browsers and WebSocket clients call: services.echo, and a web application before it.

``PAGES_VARIABLE`` names a folder of files, which are served below ``/page``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

import pyserve
from services.echo.service import Echo
from tests.contract.foreign.compressing import CompressOnDemand
from tests.contract.foreign.names import PAGES_VARIABLE, SUBPROTOCOL

_closed: list[int] = []  # close codes of sockets that have ended


async def echo_socket(socket: WebSocket) -> None:
    """Send back what comes, texts as texts and bytes as bytes."""
    offered = socket.scope["subprotocols"]
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            if (text := message.get("text")) is not None:
                await socket.send_text(text)
            else:
                await socket.send_bytes(message["bytes"])
    except WebSocketDisconnect as end:
        _closed.append(end.code)


async def refused_socket(socket: WebSocket) -> None:
    """Close before the handshake is answered."""
    await socket.close()


async def closing_socket(socket: WebSocket) -> None:
    """Accept, say one word, and close with a code of its own."""
    await socket.accept()
    await socket.send_text("bye")
    await socket.close(4001, "as planned")


async def closed_sockets(_request: Request) -> JSONResponse:
    """Return with which codes the sockets of clients have ended so far."""
    return JSONResponse(_closed)


async def events(request: Request) -> StreamingResponse:
    """Send as many events as the query says, ``pause_s`` apart."""
    count = int(request.query_params["count"])
    pause_s = float(request.query_params.get("pause_s", 0))

    async def stream() -> AsyncIterator[str]:
        for number in range(count):
            yield f"event: tick\nid: {number}\ndata: number {number}\ndata: second line\n\n"
            await asyncio.sleep(pause_s)

    return StreamingResponse(stream(), media_type="text/event-stream")


web = Starlette(
    routes=[
        Mount("/page", StaticFiles(directory=os.environ[PAGES_VARIABLE])),
        Route("/events", events),
        Route("/closed", closed_sockets),
        WebSocketRoute("/socket", echo_socket),
        WebSocketRoute("/refused", refused_socket),
        WebSocketRoute("/closing", closing_socket),
    ]
)


@pyserve.deployment
@pyserve.ingress(web)
class Pages:
    """Has the application, and the service beside it, which has routes of its own."""

    def __init__(self, echo: object) -> None:
        self._echo = echo


app = Pages.bind(Echo.options(interceptors=[CompressOnDemand()]).bind())
