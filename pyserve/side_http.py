"""HTTP servers of a process beside its work: at addresses of their own, never on the way of calls.

Whoever reaches such an address may connect and say nothing, say it slowly, or read nothing. The
process has other things to do with its descriptors, its memory and its log. So few connections are
held, those that rest longest go for those that come, and every wait for a client ends. uvicorn
alone waits for a first request for ever, and counts nobody who has sent none.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pyserve.observe.failures import Repeated
from pyserve.observe.seldom import Seldom

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pyserve.config.tls import TlsFiles

_LOGGER = logging.getLogger(__name__)
# All limits are arbitrary: far more than the few programs need that look at a mesh.
CONNECTIONS_MAX = 64
# For TLS, from there to the end of a request's head, and from one request to the next.
HEAD_TIMEOUT_S = 10.0
# For a request's body; longer than the largest, of some megabytes, takes.
BODY_TIMEOUT_S = 30.0
# A client that takes nothing of what it has asked for.
_STALL_TIMEOUT_S = 10.0
# For an answer to be read by a client that still sends a body that nobody wants.
_LINGER_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
# Without a descriptor; as asyncio does.
_PAUSE_S = 1.0


class SideServer:
    """Answers at one socket until it is closed; uses no time while nobody asks.

    Args:
        application: What answers.
        listener: A socket that listens; closed with the server.
        tls: Certificates; ``None``: plain text.
    """

    def __init__(
        self, application: ASGIApp, listener: socket.socket, *, tls: TlsFiles | None
    ) -> None:
        self._listener = listener
        self._config = uvicorn.Config(
            application,
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
        self._complaints = Seldom()
        self._accepting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept from now on."""
        self._config.load()
        self._state.default_headers = self._config.encoded_headers
        _write_seldom("uvicorn.error")
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Take nothing more, and let what is asked end for a moment. Idempotent."""
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
            held = len(self._state.connections) + len(self._greeting)
            if held >= CONNECTIONS_MAX and not self._displace():
                client.close()
                continue
            client.setblocking(False)
            task = loop.create_task(self._greet(client))
            self._greeting[task] = loop.time()
            task.add_done_callback(lambda done: self._greeting.pop(done, None))

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
        return _Connection(config=self._config, server_state=self._state, app_state={})

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
    """

    rests_since = 0.0
    _rest: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _body: asyncio.TimerHandle | None = None
    _request: object = None

    def rests(self) -> bool:
        """Whether it waits for its client: for a request, for a body, or to take the answer."""
        return self._is_idle() or self._stall is not None or self.cycle.more_body

    def _is_idle(self) -> bool:
        # None before the first request.
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        """Wait for a request."""
        super().connection_made(transport)
        self._begin_rest(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._rest, self._stall, self._body):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a body."""
        super().data_received(data)
        self._await_body()

    def on_response_complete(self) -> None:
        """Wait for the next request, but for no body that nobody reads."""
        super().on_response_complete()
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


def _write_seldom(name: str) -> None:
    """Let a logger repeat itself once a minute: strangers decide how often it has to."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, Repeated) for each in logger.filters):
        logger.addFilter(Repeated())
