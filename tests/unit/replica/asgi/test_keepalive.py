"""Pings that keep a WebSocket alive, and clients that do not answer them."""

import pytest
from wsproto import events

from pyserve.replica.asgi import websocket
from tests.support.virtual_time import use_virtual_time
from tests.unit.replica.asgi.serving import serving
from tests.unit.replica.asgi.test_websocket import Client, Echo


async def test_a_client_within_a_large_frame_is_not_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It can't send its pong before the frame's last byte."""
    use_virtual_time(monkeypatch)
    monkeypatch.setattr(websocket, "_PING_INTERVAL_S", 0.105)  # The client sees it 5 ms later.
    monkeypatch.setattr(websocket, "_PONG_TIMEOUT_S", 0.5)
    app = Echo()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        frame = client.connection.send(events.BytesMessage(data=bytes(1000)))
        client.send_raw(frame[:-3])
        for byte in (frame[-3:-2], frame[-2:-1]):
            assert isinstance(await client.next(), events.Ping)  # The one before is late.
            client.send_raw(byte)
        ping = await client.next()
        client.send_raw(frame[-1:])
        client.send(ping.response())
        messages = [await client.next(), await client.next()]
        assert {events.BytesMessage, events.Ping} == set(map(type, messages))
        close = await client.next()
        assert (1011, "keepalive ping timeout") == (close.code, close.reason)
        client.send(close.response())
        await served.released(client.call)


async def test_a_keepalive_ping_that_stays_unanswered_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_virtual_time(monkeypatch)
    monkeypatch.setattr(websocket, "_PING_INTERVAL_S", 0.105)  # The client sees it 5 ms later.
    monkeypatch.setattr(websocket, "_PONG_TIMEOUT_S", 1.0)
    app = Echo()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        ping = await client.next()
        client.send(ping.response())
        assert isinstance(await client.next(), events.Ping)  # The next one; this stays unanswered.
        close = await client.next()
        assert (1011, "keepalive ping timeout") == (close.code, close.reason)
        client.send(close.response())
        await served.released(client.call)
