"""HTTP servers of a process beside its work: at addresses of their own, never on the way of calls.

A client of such an address may connect and send nothing, send slowly, read nothing, or send
requests without end. The process needs its descriptors, its memory, its log and its time for other
things. So it holds few connections, closes the ones that are idle longest when new ones come,
limits every wait for a client, and paces requests. uvicorn alone waits for ever for a first
request, does not count connections without one, and serves a connection as long as that sends more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pyserve.observe.failures import TracebackFilter
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.pace import Pace

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pyserve.config.tls import TlsFiles

_LOGGER = logging.getLogger(__name__)
# All limits are arbitrary, far above what the few programs that watch a mesh need.
CONNECTIONS_MAX = 64
# For the TLS handshake, then up to the end of a request's head, and between two requests.
HEAD_TIMEOUT_S = 10.0
# For a request's body; longer than the largest, of some megabytes, takes.
BODY_TIMEOUT_S = 30.0
# For a client that reads nothing of its answer.
_STALL_TIMEOUT_S = 10.0
# For a client that still sends an unwanted body, to read its answer.
_LINGER_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
# The pause when no descriptor is left; as in asyncio.
_PAUSE_S = 1.0
# For a free place when all connections are busy; after it the new connection is closed.
_ROOM_TIMEOUT_S = 1.0
# The share of the loop's time for all requests, counted as if each took the same: a file of the
# page takes about a millisecond. Loading a page, or a program with a few requests, never waits.
_SHARE = 0.2
_REQUEST_S = 0.001
_FREE_S = 0.3
# In the state of a request: the future of its turn.
_TURN = "turn"


class SideServer:
    """Answers at one socket until it is closed; uses no time without requests.

    Args:
        application: Answers the requests.
        listener: A socket that listens; closed with the server.
        tls: Certificates; ``None``: plain text.
    """

    def __init__(
        self, application: ASGIApp, listener: socket.socket, *, tls: TlsFiles | None
    ) -> None:
        self._listener = listener
        self._config = uvicorn.Config(
            _Paced(application),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="off",
            http="h11",
            ws="none",
            # A client's own word on who it is.
            proxy_headers=False,
            ssl_certfile=None if tls is None else tls.cert_file,
            ssl_keyfile=None if tls is None else tls.key_file,
        )
        self._state = ServerState()
        # Handshakes under way, oldest first, with the time of each one's begin.
        self._greeting: dict[asyncio.Task[None], float] = {}
        # Somebody has gone, or may go now.
        self._changed = asyncio.Event()
        self._complaints = LogRateLimit()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept from now on."""
        self._config.load()
        self._state.default_headers = self._config.encoded_headers
        _limit_rate("uvicorn.error")
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Accept no more connections, and give running requests a moment to end. Idempotent."""
        tasks = [each for each in (self._accepting, *self._greeting) if each is not None]
        self._accepting = None
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        connections = self._connections()
        for connection in connections:
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_CLOSE_TIMEOUT_S)
        for connection in connections:
            connection.transport.abort()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # One in each turn of the loop, which has other things to do: where somebody waits,
            # accepting does not give way.
            await asyncio.sleep(0)
            try:
                client, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # No descriptor is left, or the client has gone already.
                if self._complaints.allows():
                    _LOGGER.warning("a client could not be accepted: %s", error)
                self._displace()
                await asyncio.sleep(_PAUSE_S)  # Nothing announces that a descriptor is free.
                continue
            try:
                has_room = await self._make_room()
            except asyncio.CancelledError:
                client.close()
                raise
            if not has_room:
                client.close()
                continue
            client.setblocking(False)
            task = loop.create_task(self._greet(client))
            self._greeting[task] = loop.time()
            task.add_done_callback(self._on_greeted)

    async def _make_room(self) -> bool:
        """Have somebody go for one who comes, if need be; return whether there is a place."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ROOM_TIMEOUT_S):
                while len(self._state.connections) + len(self._greeting) >= CONNECTIONS_MAX:
                    if self._displace():
                        break
                    self._changed.clear()
                    await self._changed.wait()
                return True
        return False

    def _on_greeted(self, task: asyncio.Task[None]) -> None:
        self._greeting.pop(task, None)
        self._changed.set()

    async def _greet(self, client: socket.socket) -> None:
        ssl = self._config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol,
                client,
                ssl=ssl,
                ssl_handshake_timeout=None if ssl is None else HEAD_TIMEOUT_S,
            )
        except OSError as error:  # It has gone, or speaks no TLS.
            _LOGGER.debug("a client was not greeted: %s", error)
        except asyncio.CancelledError:
            client.close()
            raise

    def _make_protocol(self) -> _Connection:
        made = _Connection(config=self._config, server_state=self._state, app_state={})
        made.on_change = self._changed.set
        greeting = asyncio.current_task()
        assert greeting is not None, "called by the loop for a task of `_greet`"
        # From here on it is one of the connections; its task ends in a later turn of the loop.
        made.on_made = partial(self._greeting.pop, greeting, None)
        return made

    def _connections(self) -> list[_Connection]:
        return [each for each in self._state.connections if isinstance(each, _Connection)]

    def _displace(self) -> bool:
        """End what has rested longest; return whether there was anything."""
        resting: list[tuple[float, Callable[[], object]]] = [
            (each.rests_since, each.transport.abort)
            for each in self._connections()
            if each.rests() and not each.transport.is_closing()
        ]
        resting += [
            (since, task.cancel) for task, since in self._greeting.items() if not task.cancelling()
        ]
        if not resting:
            return False
        _, end = min(resting, key=lambda each: each[0])
        end()
        return True


class _Connection(H11Protocol):
    """uvicorn's, that waits for nobody without an end.

    Attributes:
        rests_since: On the loop's clock: its begin, or the end of its last answer.
        on_made: Called once, when it begins.
        on_change: Called when it has gone, or may go for another one.
    """

    rests_since = 0.0
    on_made: Callable[[], object] = staticmethod(lambda: None)
    on_change: Callable[[], None] = staticmethod(lambda: None)
    _has_answered = False
    _rest: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _body: asyncio.TimerHandle | None = None
    _request: object = None

    def rests(self) -> bool:
        """Whether it waits for its client: for a request, for a body, or to take the answer.

        One that has been answered and had sent more keeps no place for that until it begins.
        """
        if self._is_idle() or self._stall is not None or self.cycle.more_body:
            return True
        turn = self._turn()
        return self._has_answered and turn is not None and not turn.done()

    def _turn(self) -> asyncio.Future[bool] | None:
        # None before the first request, and until its task begins.
        found = (self.scope or {}).get("state", {}).get(_TURN)
        return found if isinstance(found, asyncio.Future) else None

    def _is_idle(self) -> bool:
        # None before the first request.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        """Wait for a request."""
        super().connection_made(transport)
        self.on_made()
        self._begin_rest(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if (turn := self._turn()) is not None and not turn.done():
            turn.set_result(False)
        self.on_change()
        for timer in (self._rest, self._stall, self._body):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a body."""
        super().data_received(data)
        self._await_body()

    def on_response_complete(self) -> None:
        """Wait for the next request, but not for the rest of an unread body."""
        self._has_answered, self.rests_since = True, self.loop.time()
        super().on_response_complete()
        self.on_change()
        if self.transport.is_closing():
            return
        if not self._is_idle():
            self._await_body()  # The next request had come already.
            return
        if self.conn.their_state is h11.SEND_BODY:
            self.flow.pause_reading()
            self._begin_rest(_LINGER_S)
        else:
            self._begin_rest(HEAD_TIMEOUT_S)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(_STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _await_body(self) -> None:
        if self._is_idle() or self.cycle is self._request:
            return
        self._request = self.cycle
        if self._body is not None:
            self._body.cancel()
        if self.cycle.more_body:
            self._body = self.loop.call_later(BODY_TIMEOUT_S, self._end_body, self.cycle)

    def _end_body(self, request: object) -> None:
        if request is self.cycle and self.cycle.more_body and not self._is_idle():
            self.transport.abort()

    def _begin_rest(self, patience_s: float) -> None:
        self.rests_since = self.loop.time()
        if self._rest is not None:
            self._rest.cancel()
        self._rest = self.loop.call_later(patience_s, self._end_rest)

    def _end_rest(self) -> None:
        if self._is_idle():
            self.transport.abort()


class _Paced:
    """An application whose requests begin in the order in which they came, and not all at once.

    Each request that waits has a connection, so there are few.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._pace = Pace(_SHARE, free_s=_FREE_S, wait_max_s=_ROOM_TIMEOUT_S)
        # In order, as keys are.
        self._waiting: dict[asyncio.Future[bool], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        turn.add_done_callback(lambda done: self._waiting.pop(done, None))
        scope["state"][_TURN] = turn
        self._waiting[turn] = None
        self._begin_next()
        # False: its client has gone.
        if await turn:
            await self._application(scope, receive, send)

    def _begin_next(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._timer is None:
            turn = next(iter(self._waiting))
            if turn.done():  # Nobody's time is taken for a client that has gone.
                del self._waiting[turn]
            elif wait_s := self._pace.wait_s(loop.time()):
                self._timer = loop.call_later(wait_s, self._on_timer)
            else:
                del self._waiting[turn]
                turn.set_result(True)
                self._pace.spend(_REQUEST_S, loop.time())

    def _on_timer(self) -> None:
        self._timer = None
        self._begin_next()


def _limit_rate(name: str) -> None:
    """Let a logger repeat itself once a minute: strangers decide how often it has to."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, TracebackFilter) for each in logger.filters):
        logger.addFilter(TracebackFilter())
