"""WebSockets: how they begin and end where an application says too little, or too much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyserve.replica.asgi import websocket
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
