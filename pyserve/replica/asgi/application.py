"""The ASGI application of one replica, from its startup to its shutdown."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from pyserve.replica.asgi.http import serve_http
from pyserve.replica.asgi.lifespan import Lifespan
from pyserve.replica.asgi.routes import RouteMeasures
from pyserve.replica.asgi.scope import scope_of
from pyserve.replica.asgi.turns import Turns

if TYPE_CHECKING:
    from pyserve.aio import HttpCall
    from pyserve.replica.asgi.types import Application
    from pyserve.replica.asgi.websocket import WebSocketSession


class AsgiApplication:
    """Answers the plain HTTP requests of a replica with an ASGI application.

    Made and used on the replica's loop: ``startup``, then ``handle`` for each request, then
    ``drain`` and ``shutdown``.

    Args:
        app: Any ASGI 3 application.
        idempotent_routes: Whose requests may be repeated, see ``idempotence``.
        inner: The application behind middlewares; ``None``: there are no middlewares.

    Attributes:
        inner: The same.
        measures: Its requests by route.
    """

    def __init__(
        self,
        app: Application,
        idempotent_routes: Sequence[str] = (),
        inner: Application | None = None,
    ) -> None:
        self.idempotent_routes = idempotent_routes
        self.inner = app if inner is None else inner
        self.measures = RouteMeasures(self.inner)
        self._app = app
        self._measures = self.measures if self.measures.is_known else None
        self._lifespan = Lifespan(app)
        self._state = self._lifespan.state
        self._sessions: set[WebSocketSession] = set()
        self._turns = Turns()
        self._is_draining = False

    async def startup(self) -> None:
        """Run the startup of the application's lifespan.

        Raises:
            LifespanFailed: It failed; the text is the application's.
        """
        await self._lifespan.startup()

    def handle(self, call: HttpCall) -> Awaitable[None]:
        """Answer one request, or serve one WebSocket until it is closed."""
        # No coroutine of its own: each one in the chain costs every request.
        fields = call.head_fields()
        if fields[0]:
            return self._serve_websocket(call)
        return serve_http(self._app, call, scope_of(fields, self._state), self._measures)

    async def _serve_websocket(self, call: HttpCall) -> None:
        from pyserve.replica.asgi.websocket import WebSocketSession

        session = WebSocketSession(self._app, call, self._state, self._turns)
        self._sessions.add(session)
        if self._is_draining:
            session.drain()
        try:
            await session.run()
        finally:
            self._sessions.discard(session)

    def drain(self) -> None:
        """Ask the clients of all WebSockets, also of later ones, to reconnect; requests go on."""
        self._is_draining = True
        for session in self._sessions:
            session.drain()

    async def shutdown(self) -> None:
        """Run the shutdown of the application's lifespan.

        Raises:
            LifespanFailed: It failed.
        """
        await self._lifespan.shutdown()
