"""A web application with routes and a WebSocket."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

import pyserve


async def item(request: Request) -> Response:
    """Say what the application sees of the request."""
    assert request.client is not None
    return JSONResponse(
        {
            "item": request.path_params["number"],
            "prefix": request.headers.get("x-forwarded-prefix"),
            "client": request.client.host,
            "scheme": request.url.scheme,
        }
    )


async def shout(socket: WebSocket) -> None:
    """Answer each message in capitals."""
    await socket.accept()
    async for message in socket.iter_text():
        await socket.send_text(message.upper())


web = Starlette(routes=[Route("/items/{number:int}", item), WebSocketRoute("/shout", shout)])


@pyserve.deployment(health_check_period_s=60.0)
@pyserve.ingress(web)
class Api:
    """Serves it."""


api = Api.bind()
