"""WebSockets: how they begin and end where an application says too little, or too much."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from wsproto import events

from pyserve.replica.asgi import websocket
from tests.support.virtual_time import use_virtual_time
from tests.support.waiting import eventually
from tests.unit.replica.asgi.serving import serving
from tests.unit.replica.asgi.test_websocket import ACCEPT, Client

PROTOCOL = b"sec-websocket-protocol"


@pytest.mark.parametrize(
    ("error", "code"), [(None, 1000), (RuntimeError("x"), 1011), (asyncio.CancelledError(), 1011)]
)
async def test_one_that_its_application_leaves_open_is_closed(
    error: BaseException | None, code: int
) -> None:
    """Without a close frame its client sees 1006, as after a broken connection."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        if error is not None:
            raise error

    async with serving(app) as served:
        client = Client(served)
        close = await client.next()
        assert (code, "") == (close.code, close.reason)
        client.send(close.response())
        assert ("finish", 0) == (await served.released(client.call))[-1][:2]


@pytest.mark.parametrize("by_application", [True, False])
async def test_a_client_that_does_not_read_holds_no_close_up(
    by_application: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_CLOSE_TIMEOUT_S", 0.01)
    monkeypatch.setattr(websocket, "LEAVE_TIMEOUT_S", 0.01)
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        client.call.room = False
        try:
            if by_application:
                await send({"type": "websocket.close"})
                await receive()
            else:
                await send({"type": "websocket.send", "text": "x"})
        finally:
            ended.append("ended")

    async with serving(app) as served:
        client = Client(served)
        await eventually(lambda: not client.call.room)
        if not by_application:
            served.application.drain()
        # It is reset: an end behind what nobody reads would not be read either.
        kind, number, *_ = (await served.released(client.call))[-1]
        assert ("finish", 1) == (kind, number)
    assert ["ended"] == ended


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ({"headers": [(b"X-A", b"1"), (b"Content-Length", b"0")]}, [(b"X-A", b"1")]),
        ({"headers": [(b"Sec-WebSocket-Extensions", b"permessage-deflate")]}, []),
        ({"headers": [(b"sec-websocket-accept", b"x"), (b"sec-websocket-version", b"8")]}, []),
        ({"headers": [(b"Sec-WebSocket-Protocol", b"b")]}, [(PROTOCOL, b"b")]),
        ({"headers": [(PROTOCOL, b"b")], "subprotocol": "b"}, [(PROTOCOL, b"b")]),
        ({"headers": [(PROTOCOL, b"a")], "subprotocol": "b"}, "two subprotocols"),
        ({"headers": [(PROTOCOL, b"c")]}, "did not offer"),
    ],
)
async def test_the_handshake_is_the_servers(accept: Any, expected: list[Any] | str) -> None:
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({**ACCEPT, **accept})
        except RuntimeError as error:
            refused.append(str(error))
        else:
            await send({"type": "websocket.close"})

    async with serving(app) as served:
        client = Client(served, (PROTOCOL, b"a, b"))
        await eventually(lambda: client.call.commands)
        kind, _, headers = client.call.commands[0][:3]
        if isinstance(expected, str):
            assert "respond" == kind
            assert [expected in text for text in refused] == [True]
        else:
            assert ("start_response", expected) == (kind, list(headers))
            client.send((await client.next()).response())
        await served.released(client.call)


@pytest.mark.parametrize("status", [101, 200, 204, 299, 600, "403"])
async def test_a_denial_that_would_not_be_one_is_refused(status: Any) -> None:
    """Over HTTP/2 each status from 200 to 299 accepts (RFC 8441, 5)."""
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "websocket.http.response.start", "status": status})
        except RuntimeError as error:
            refused.append(str(error))

    async with serving(app) as served:
        (command,) = await served.released(Client(served).call)
    assert ("respond", 500) == command[:2]
    assert 1 == len(refused)
    assert "300 to 599" in refused[0]


@pytest.mark.parametrize(
    ("closes", "code"), [("keepalive", 1011), ("drain", 1012), ("too large", 1009)]
)
async def test_a_client_that_does_not_answer_our_close_ends_with_its_application(
    monkeypatch: pytest.MonkeyPatch, closes: str, code: int
) -> None:
    """It has vanished, maybe, while the application waits for something else."""
    use_virtual_time(monkeypatch)
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        if closes == "drain":
            served.application.drain()
        elif closes == "too large":
            monkeypatch.setattr(websocket, "_MESSAGE_BYTES_MAX", 10)
            client = Client(served)
            await client.accepted()
            client.send(events.BytesMessage(data=bytes(11)))
        frame = await client.next()
        while isinstance(frame, events.Ping):
            frame = await client.next()
        assert code == frame.code
        assert [] == ended
        await served.released(client.call)
        assert "ended" in ended


@pytest.mark.parametrize("closes", ["client", "application", "vanished"])
async def test_an_ended_one_is_freed_without_the_garbage_collector(closes: str) -> None:
    """An application keeps buffers of megabytes in its state."""
    states: list[weakref.ref[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["buffer"] = buffer = {"a set can be referred to"}
        states.append(weakref.ref(buffer))
        await receive()
        await send(ACCEPT)
        if closes == "application":
            await send({"type": "websocket.close"})
        else:
            await receive()

    async with serving(app) as served:
        gc.collect()
        gc.disable()
        try:
            client = Client(served)
            await client.accepted()
            if closes == "client":
                client.send(events.CloseConnection(code=1000))
            elif closes == "vanished":
                served.cancel(client.call)
            else:
                client.send((await client.next()).response())
            await served.released(client.call)
            await eventually(lambda: states[0]() is None)
        finally:
            gc.enable()
