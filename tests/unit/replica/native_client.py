"""A native client of one server, as a handle's way to a replica is: trusted, framed, any codec."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from pyserve import _router
from pyserve.bridge import running_endpoint
from tests.support.routes import native_route, replica_view


@dataclass
class Outcome:
    """How one call has ended."""

    code: int | None = None
    details: str = ""
    trailers: dict[str, Any] = field(default_factory=dict)
    message: bytes | None = None


class OneCall:
    """One call on its way; ``messages`` are those of a stream."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.raw: _router.ClientCall | None = None

    def on_event(self, kind: int, _subject: object, payload: object) -> None:
        assert self.raw is not None
        if kind == _router.MESSAGE:
            assert isinstance(payload, bytes)
            self.messages.put_nowait(payload)
        elif kind == _router.DONE:
            running_endpoint().receivers.pop(self.raw.token, None)
            self.messages.put_nowait(None)
            assert payload is None or isinstance(payload, bytes)
            trailers = dict(self.raw.trailing_metadata() or ())
            if not self.done.done():
                details = self.raw.details() or ""
                self.done.set_result(Outcome(self.raw.code(), details, trailers, payload))

    def abandon(self) -> None:
        self.done.cancel()

    def cancel(self) -> None:
        assert self.raw is not None
        running_endpoint().receivers.pop(self.raw.token, None)
        if self.raw.cancel(1, ""):
            running_endpoint().schedule_flush()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.messages.get()) is not None:
            assert self.raw is not None
            if self.raw.taken(len(message)):
                running_endpoint().schedule_flush()
            yield message


class Client:
    """Calls the methods of one deployment at one server.

    Args:
        key: ``application/Deployment``.
        port: Where the server listens.
        token: The mesh token; another one than the server's makes the client a stranger.
    """

    def __init__(self, key: str, port: int, token: bytes, replica_id: str) -> None:
        application, _, deployment = key.partition("/")
        self._table = _router.RoutingTable(node="n", zone="", token=token, seed=1)
        route = native_route(
            [replica_view(replica_id, port, 100)],
            {f"{application}.{deployment}": None},
            target=key,
            max_request_bytes=1 << 30,
        )
        self._table.apply(1, [route])
        self._channel = _router.Channel(
            key, table=self._table, max_receive_message_bytes=-1, max_send_message_bytes=-1
        )
        self._prefix = f"/{application}.{deployment}/"

    def start(
        self,
        method: str,
        message: Any,
        *,
        subtype: str = "pickle",
        framed: bool = True,
        stream: bool = False,
        timeout_s: float | None = 10.0,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> OneCall:
        endpoint = running_endpoint()
        call = OneCall()
        call.raw = self._channel.start_call(
            endpoint.raw,
            self._prefix + method,
            metadata,
            timeout_s,
            message,
            0,
            False,
            stream,
            subtype=subtype,
            framed=framed,
        )
        endpoint.receivers[call.raw.token] = call
        if call.raw.started:
            endpoint.schedule_flush()
        return call

    async def unary(self, method: str, message: Any, **options: Any) -> Outcome:
        return await self.start(method, message, **options).done

    def close(self) -> None:
        self._channel.close()
