"""Requests for an ASGI application without a socket, and what was queued for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pyserve import _router
from pyserve.aio import ServerSettings
from pyserve.aio._server import Server
from pyserve.replica.asgi import AsgiApplication
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeHttpHead, FakeServer, FakeServerCall


@dataclass
class Served:
    """A server that runs one application."""

    application: AsgiApplication
    server: Server
    native: FakeServer

    def request(self, body: bytes | None = b"", **head: Any) -> FakeServerCall:
        """Let a request arrive; without a body it comes as a stream."""
        return self.native.request(body, FakeHttpHead(**head))

    def push(self, call: FakeServerCall, piece: bytes) -> None:
        """Let a piece of a streamed body arrive."""
        self.native.endpoint.push(_router.MESSAGE, call.token, None, piece)

    def cancel(self, call: FakeServerCall, reason: int = _router.CANCEL_CLIENT) -> None:
        """Let the client go away."""
        self.native.endpoint.push(_router.CANCEL, call.token, reason)

    async def released(self, call: FakeServerCall) -> list[tuple[Any, ...]]:
        """Wait until nothing runs for ``call`` any more; return what was queued."""
        receivers = self.server._endpoint.receivers
        await eventually(lambda: call.commands and call.token not in receivers)
        return call.commands


@asynccontextmanager
async def serving(app: Any, *, lifespan: bool = False) -> AsyncIterator[Served]:
    """Serve ``app``, which knows its lifespan only if that is said."""

    async def without_lifespan(scope: Any, receive: Any, send: Any) -> Any:
        assert scope["type"] != "lifespan"
        return await app(scope, receive, send)

    application = AsgiApplication(app if lifespan else without_lifespan)
    await application.startup()
    server = Server(settings=ServerSettings(http=application.handle))
    await server.start()
    native: Any = server.native
    try:
        yield Served(application, server, native)
    finally:
        await server.stop(None)
        await application.shutdown()
