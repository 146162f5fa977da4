"""The ASGI application of one replica and its lifespan, from startup to shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from pyserve.errors import PyserveError
from pyserve.observe.failures import format_from_user_code, user_code_logger
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.replica.asgi.http import serve_http
from pyserve.replica.asgi.routes import RouteMeasures
from pyserve.replica.asgi.scope import scope_of
from pyserve.replica.asgi.turns import Turns

if TYPE_CHECKING:
    from pyserve.aio import HttpCall
    from pyserve.replica.asgi.scope import Application, Message
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
        self._places: int | None = None
        self._lines = LogRateLimit()

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
        self._warn_if_full()
        if self._is_draining:
            session.drain()
        try:
            await session.run()
        finally:
            self._sessions.discard(session)

    def set_places(self, places: int) -> None:
        """Say how many requests and WebSockets may be open at once."""
        self._places = places
        self._warn_if_full()

    def _warn_if_full(self) -> None:
        """Say that requests wait for WebSockets, which nothing else would show."""
        places = self._places
        if places is not None and len(self._sessions) >= places and self._lines.allows():
            _LOGGER.warning(
                "WebSockets have every place of this replica (max_ongoing_requests=%d): other "
                "requests wait until one is closed or another replica has room; set a higher limit",
                places,
            )

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


# The lifespan of an application: one task in which it runs from startup to shutdown.

_LOGGER = user_code_logger(__name__)


class LifespanFailed(PyserveError):
    """The application said that its lifespan failed.

    Args:
        text: What it said, often a traceback.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Lifespan:
    """Starts and stops an application; for one loop.

    Args:
        app: The application.

    Attributes:
        state: Set by the application in its startup; in the scope of every request.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._failure: str | None = None
        self._stopping = False

    async def startup(self) -> None:
        """Wait until the application is ready, or proves not to support lifespans.

        Raises:
            LifespanFailed: It says that it failed.
        """
        self._task = asyncio.create_task(self._run(), name="pyserve lifespan")
        self._events.put_nowait({"type": "lifespan.startup"})
        try:
            await self._started.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if self._failure is not None:
            raise LifespanFailed(self._failure)

    async def shutdown(self) -> None:
        """Wait until the application has cleaned up. Without effect if it never started.

        Raises:
            LifespanFailed: It says that this failed.
        """
        if self._task is None or self._task.done():
            return
        self._stopping = True
        self._events.put_nowait({"type": "lifespan.shutdown"})
        try:
            await self._stopped.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if self._failure is not None:
            raise LifespanFailed(self._failure)

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._app(scope, self._receive, self._send)
        except (SystemExit, KeyboardInterrupt) as error:
            # Out of a task they would end the loop, and with it the replica, without a word.
            if self._started.is_set() and not self._stopping:
                _LOGGER.exception("the application left its lifespan; requests are still answered")
            else:
                self._failure = self._failure or format_from_user_code(error)
        except Exception as error:
            if self._failure is not None:
                return  # It has said so before it raised.
            if self._started.is_set():
                _LOGGER.exception("the application raised in its lifespan")
            else:
                # As servers do: what refuses the scope is an application without a lifespan.
                _LOGGER.info("the application has no lifespan (%s)", type(error).__name__)
        finally:
            self._started.set()
            self._stopped.set()

    async def _receive(self) -> Message:
        return await self._events.get()

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            self._started.set()
        elif kind == "lifespan.shutdown.complete":
            self._stopped.set()
        elif kind == "lifespan.startup.failed":
            self._failure = message.get("message") or "the application did not say why"
            self._started.set()
        elif kind == "lifespan.shutdown.failed":
            self._failure = message.get("message") or "the application did not say why"
            self._stopped.set()
            if not self._stopping:  # A task of the application, often: frameworks end with it.
                _LOGGER.error(
                    "the lifespan of the application failed while it served, and requests are "
                    "still answered: %s",
                    self._failure,
                )
        else:
            raise RuntimeError(f"the application sent {kind!r} in its lifespan")
