"""What is attacked: a plain HTTP handler and WebSockets; services of gRPC run beside them."""

from __future__ import annotations

from fastapi import FastAPI, WebSocket
from starlette.requests import Request

import pyserve

_api = FastAPI()


@pyserve.deployment
class Plain:
    """Answers with as many bytes as the query asks for, or with how many came."""

    def __init__(self) -> None:
        self._requests: list[str] = []

    async def __call__(self, request: Request) -> bytes:
        """Take the whole body and answer."""
        if request.url.path == "/plain/requests":
            return "\n".join(self._requests).encode()
        body = await request.body()
        # Not before: a body that breaks off in the middle does not count as a request.
        if "note" in request.query_params:
            self._requests.append(f"{request.method} {request.url.query}")
        if wanted := request.query_params.get("bytes"):
            return bytes(int(wanted))
        return str(len(body)).encode()


plain_app = Plain.bind()  # type: ignore[attr-defined]  # what decorators return


@pyserve.deployment
@pyserve.ingress(_api)
class Sockets:
    """Takes what WebSockets send; beside them it answers requests."""

    @_api.get("/")
    async def get(self) -> str:
        """Answer in a word."""
        return "ok"

    @_api.websocket("/socket")
    async def take(self, socket: WebSocket) -> None:
        """Take every message."""
        await socket.accept()
        async for _ in socket.iter_text():
            pass


sockets_app = Sockets.bind()  # type: ignore[attr-defined]  # as above
