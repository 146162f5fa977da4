"""A WebSocket's client sends messages while the application takes none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from wsproto import events

from pyserve.replica.asgi import websocket
from tests.support.virtual_time import use_virtual_time
from tests.support.waiting import eventually
from tests.unit.replica.asgi.serving import serving
from tests.unit.replica.asgi.test_websocket import ACCEPT, Client

UNREAD_MESSAGES_MAX = 32
UNREAD_BYTES_MAX = 64 * 1024


class Busy:
    """Takes nothing until ``go`` is set, then echoes; it remembers how it was left."""

    def __init__(self, *, echoes: bool = True) -> None:
        self._echoes = echoes
        self.go = asyncio.Event()
        self.left: list[tuple[int, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        await self.go.wait()
        while (message := await receive())["type"] == "websocket.receive":
            if self._echoes:
                await send({**message, "type": "websocket.send"})
        self.left.append((message["code"], message["reason"]))


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["m"] * 2 * UNREAD_MESSAGES_MAX, UNREAD_MESSAGES_MAX),
        (["m" * UNREAD_BYTES_MAX] * 3, 1),
        (["m" * (UNREAD_BYTES_MAX // 2 + 1)] * 4, 2),
    ],
)
async def test_a_client_cannot_send_more_than_is_read(texts: list[str], read: int) -> None:
    app = Busy()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        frames = [client.connection.send(events.Message(data=text)) for text in texts]
        for frame in frames:
            client.send_raw(frame)
        await eventually(lambda: sum(map(len, frames[:read])) == client.call.taken_bytes)
        await asyncio.sleep(0.02)  # Nothing would be announced if it read on.
        assert sum(map(len, frames[:read])) == client.call.taken_bytes
        app.go.set()
        assert texts == [(await client.next()).data for _ in texts]
        served.cancel(client.call)
        await served.released(client.call)


async def test_pings_and_the_close_behind_unread_messages_are_answered() -> None:
    app = Busy(echoes=False)
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        client.send(*[events.Message(data="m")] * 3, events.Ping(payload=b"p"))
        assert b"p" == (await client.next()).payload
        client.send(events.CloseConnection(code=3003, reason="enough"))
        assert 3003 == (await client.next()).code
        app.go.set()
        await served.released(client.call)
    assert [(3003, "enough")] == app.left


async def test_a_client_whose_pong_lies_unread_is_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_virtual_time(monkeypatch)
    monkeypatch.setattr(websocket, "_PING_INTERVAL_S", 0.105)
    monkeypatch.setattr(websocket, "_PONG_TIMEOUT_S", 1.0)
    app = Busy()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        client.send(*[events.Message(data="m")] * UNREAD_MESSAGES_MAX)
        pings = [await client.next() for _ in range(3)]  # Each says that the one before is late.
        assert [events.Ping] * 3 == list(map(type, pings))
        app.go.set()
        echoes = 0
        while not isinstance(event := await client.next(), events.CloseConnection):
            echoes += isinstance(event, events.TextMessage)
        # From then on it had to answer, and did not.
        assert (UNREAD_MESSAGES_MAX, 1011) == (echoes, event.code)
        client.send(event.response())
        await served.released(client.call)
    assert [1006] == [code for code, _ in app.left]
