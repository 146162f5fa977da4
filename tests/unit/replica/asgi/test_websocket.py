"""WebSockets: the frames that the native side gets, and what the application is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from wsproto import events
from wsproto.connection import Connection, ConnectionType
from wsproto.extensions import PerMessageDeflate

from pyserve.observe import failures
from pyserve.observe.log_rate_limit import Allowance
from pyserve.replica.asgi import websocket
from pyserve.replica.asgi.deflate import AnnouncedSize
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeServerCall
from tests.unit.replica.asgi.serving import Served, serving

ACCEPT = {"type": "websocket.accept"}
FRAMES_PER_TURN = 8
EMPTY_FRAGMENT = b"\x00\x80\x00\x00\x00\x00"
DEFLATE = (b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits")


class Client:
    """The other end: makes frames, and reads those that were queued."""

    def __init__(self, served: Served, *headers: tuple[bytes, bytes]) -> None:
        extensions = [PerMessageDeflate()] if DEFLATE in headers else []
        for extension in extensions:
            extension.finalize("permessage-deflate")
        self.served = served
        self.call: FakeServerCall = served.request(
            None, method="GET", is_websocket=True, headers=[(b"host", b"h"), *headers]
        )
        self.connection = Connection(ConnectionType.CLIENT, list(extensions))
        self.events: list[Any] = []
        self._read = 0

    def send(self, *sent: events.Event) -> None:
        self.send_raw(b"".join(self.connection.send(each) for each in sent))

    def send_raw(self, data: bytes) -> None:
        self.served.push(self.call, data)

    async def next(self) -> Any:
        """Return the next frame of the server."""
        await eventually(self._arrived)
        return self.events.pop(0)

    def _arrived(self) -> bool:
        for command in self.call.commands[self._read :]:
            self._read += 1
            if command[0] == "write":
                self.connection.receive_data(command[1])
                self.events += self.connection.events()
        return bool(self.events)

    async def accepted(self) -> dict[bytes, bytes]:
        await eventually(lambda: self.call.commands)
        kind, status, headers = self.call.commands[0]
        assert ("start_response", 200) == (kind, status)
        return dict(headers)


class CountingHeads(AnnouncedSize):
    """Counts the frames of all WebSockets."""

    heads = 0

    def frame_inbound_header(self, *head: Any) -> Any:
        CountingHeads.heads += 1
        return super().frame_inbound_header(*head)


class Echo:
    """Sends every message back, and remembers how it was left."""

    def __init__(self) -> None:
        self.left: list[tuple[int, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert {"type": "websocket.connect"} == await receive()
        await send(ACCEPT)
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        self.left.append((message["code"], message["reason"]))


async def test_messages_pings_and_the_close_of_the_client() -> None:
    app = Echo()
    async with serving(app) as served:
        client = Client(served)
        assert {} == await client.accepted()
        client.send(events.Ping(payload=b"p"), events.Message(data="one "))
        assert b"p" == (await client.next()).payload
        assert "one " == (await client.next()).data
        client.send(events.Message(data=b"a", message_finished=False), events.Message(data=b"b"))
        assert b"ab" == (await client.next()).data
        client.send(events.CloseConnection(code=3003, reason="enough"))
        assert 3003 == (await client.next()).code
        commands = await served.released(client.call)
        assert ("finish", 0, "", (), None) == commands[-1]
    assert [(3003, "enough")] == app.left


async def test_subprotocol_headers_and_compression_are_answered() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert ["a", "b"] == scope["subprotocols"]
        assert ("websocket", "wss") == (scope["type"], scope["scheme"])
        await send({**ACCEPT, "subprotocol": "b", "headers": [(b"x-a", b"1")]})
        await send({"type": "websocket.send", "text": "x" * 1000})
        await send({"type": "websocket.close", "code": 4001, "reason": "done"})

    async with serving(app) as served:
        protocols = (b"sec-websocket-protocol", b"a, b")
        client = Client(served, protocols, DEFLATE)
        client.call.head.scheme = "https"
        headers = await client.accepted()
        assert b"b" == headers.pop(b"sec-websocket-protocol")
        assert headers.pop(b"sec-websocket-extensions").startswith(b"permessage-deflate")
        assert {b"x-a": b"1"} == headers
        assert "x" * 1000 == (await client.next()).data
        assert len(client.call.commands[1][1]) < 100
        close = await client.next()
        assert (4001, "done") == (close.code, close.reason)
        client.send(close.response())
        await served.released(client.call)


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        ((b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits=abc"), {}),
        ((b"sec-websocket-extensions", b"permessage-deflate; server_max_window_bits="), {}),
        ((b"sec-websocket-extensions", b"permessage-deflate; =;\xff"), {}),
        (
            (b"sec-websocket-extensions", b'permessage-deflate; server_max_window_bits="12"'),
            {b"sec-websocket-extensions": b"permessage-deflate; server_max_window_bits=12"},
        ),
        ((b"sec-websocket-protocol", b"\xe9"), {b"sec-websocket-protocol": b"\xe9"}),
    ],
)
async def test_a_header_that_cannot_be_read_spoils_no_handshake(
    header: tuple[bytes, bytes], answer: dict[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({**ACCEPT, "subprotocol": next(iter(scope["subprotocols"]), None)})
        await send({"type": "websocket.close"})

    async with serving(app) as served:
        client = Client(served, header)
        assert answer == await client.accepted()
        served.cancel(client.call)
        await served.released(client.call)
    assert [] == caplog.messages


@pytest.mark.parametrize("version", ["1.1", "2"])
async def test_headers_say_that_it_is_a_websocket(version: str) -> None:
    """Socket.IO asks for them; uvicorn, hypercorn and granian pass them on with the others."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["headers"])
        await send({"type": "websocket.close"})

    others = [(b"sec-websocket-key", b"k"), (b"sec-websocket-version", b"13"), (b"a", b"1")]
    async with serving(app) as served:
        client = Client(served, *others)
        client.call.head.version = version
        await served.released(client.call)
    (headers,) = seen
    assert [(b"upgrade", b"websocket")] == [each for each in headers if each[0] == b"upgrade"]
    assert [(b"connection", b"Upgrade")] == [each for each in headers if each[0] == b"connection"]
    assert set(others) <= set(headers)
    assert b"upgrade" not in dict(client.call.head.headers)


async def test_a_client_that_is_gone_is_a_disconnect_and_the_application_ends_by_itself() -> None:
    app = Echo()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        served.cancel(client.call)
        await served.released(client.call)
    assert [(1006, "")] == app.left


async def test_an_application_that_does_not_listen_is_cancelled_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "LEAVE_TIMEOUT_S", 0.01)
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(ACCEPT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async with serving(app) as served:
        for closes in (False, True):
            client = Client(served)
            await client.accepted()
            if closes:
                client.send(events.CloseConnection(code=1000))
            else:
                served.cancel(client.call)
            await served.released(client.call)
    assert ["ended", "ended"] == ended


async def test_a_drain_asks_the_client_to_come_again() -> None:
    app = Echo()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        served.application.drain()
        close = await client.next()
        assert 1012 == close.code
        client.send(close.response())
        await served.released(client.call)
    assert [(1012, "")] == app.left


async def test_after_a_drain_new_clients_are_asked_too_and_requests_answered() -> None:
    app = Echo()

    async def both(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"answered"})

    async with serving(both) as served:
        served.application.drain()
        client = Client(served)
        await client.accepted()
        close = await client.next()
        assert 1012 == close.code
        client.send(close.response())
        await served.released(client.call)
        answered = await served.released(served.request(method="GET"))
        assert b"answered" in answered[0]
    assert [(1012, "")] == app.left


async def test_a_message_that_is_too_large_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_MESSAGE_BYTES_MAX", 10_000)
    app = Echo()
    async with serving(app) as served:
        client = Client(served, DEFLATE)
        await client.accepted()
        client.send(events.Message(data="ö" * 5000))
        assert 10_000 == len((await client.next()).data.encode())
        client.send(events.Message(data="ö" * 5000 + "x"))
        close = await client.next()
        assert 1009 == close.code
        client.send(close.response())
        await served.released(client.call)
    assert [1009] == [code for code, _ in app.left]


@pytest.mark.parametrize(
    ("frames", "headers"),
    [
        pytest.param(b"\x82\xff" + (1 << 40).to_bytes(8, "big"), (), id="one frame"),
        pytest.param(b"\xc2\xff" + (1 << 40).to_bytes(8, "big"), (DEFLATE,), id="compressed"),
        pytest.param(
            b"\x02\x83\x00\x00\x00\x00abc\x80\xfe\x27\x0e", (), id="fragments of 10 001 bytes"
        ),
    ],
)
async def test_a_frame_that_announces_too_much_closes_before_it_comes(
    frames: bytes, headers: tuple[tuple[bytes, bytes], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_MESSAGE_BYTES_MAX", 10_000)
    app = Echo()
    async with serving(app) as served:
        client = Client(served, *headers)
        await client.accepted()
        client.send_raw(frames)
        close = await client.next()
        assert (1009, "Message exceeds the maximum size (10000 bytes)") == (
            close.code,
            close.reason,
        )
        # Nobody waits for the rest of it.
        commands = await served.released(client.call)
        assert ("finish", 0, "", (), None) == commands[-1]
    assert [1009] == [code for code, _ in app.left]


async def test_fragments_may_announce_together_what_a_message_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "_MESSAGE_BYTES_MAX", 10_000)
    async with serving(Echo()) as served:
        client = Client(served)
        await client.accepted()
        for _ in range(2):
            client.send(events.Message(data=b"a" * 4000, message_finished=False))
            client.send(events.Ping(payload=b"p"), events.Message(data=b"b" * 6000))
            assert b"p" == (await client.next()).payload
            assert 10_000 == len((await client.next()).data)
        client.send(events.CloseConnection(code=1000))
        assert 1000 == (await client.next()).code
        await served.released(client.call)


@pytest.mark.parametrize("headers", [(), (DEFLATE,)], ids=["plain", "compressed"])
async def test_a_message_of_too_many_fragments_closes_and_one_of_as_many_as_may_be_is_read(
    headers: tuple[tuple[bytes, bytes], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "_MESSAGE_FRAMES_MAX", 100)
    app = Echo()
    async with serving(app) as served:
        client = Client(served, *headers)
        await client.accepted()
        for _ in range(2):
            client.send_raw(b"\x02\x81\x00\x00\x00\x00a" + EMPTY_FRAGMENT * 98)
            client.send_raw(b"\x80\x81\x00\x00\x00\x00b")
            assert b"ab" == (await client.next()).data
        client.send_raw(b"\x02\x80\x00\x00\x00\x00" + EMPTY_FRAGMENT * 100)
        close = await client.next()
        assert (1008, "Message has more than 100 fragments") == (close.code, close.reason)
        await served.released(client.call)
    assert [1008] == [code for code, _ in app.left]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(EMPTY_FRAGMENT, id="empty fragments"),
        pytest.param(b"\x00\x81\x00\x00\x00\x00a", id="fragments of one byte"),
        pytest.param(b"\x8a\x80\x00\x00\x00\x00", id="pongs"),
        pytest.param(b"\x89\x80\x00\x00\x00\x00", id="pings"),
        pytest.param(b"\x81\x81\x00\x00\x00\x00a", id="messages"),
    ],
)
async def test_others_have_their_turn_between_small_frames(
    frame: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One piece has a thousand of them, from each of several clients."""
    monkeypatch.setattr(websocket, "AnnouncedSize", CountingHeads)
    CountingHeads.heads = 0
    frames = 1000
    async with serving(Echo()) as served:
        clients = [Client(served) for _ in range(5)]
        for client in clients:
            await client.accepted()
            client.send_raw(b"\x01\x80\x00\x00\x00\x00" * (frame[0] == 0) + frame * frames)
        in_turns = []
        while CountingHeads.heads < len(clients) * frames:
            before = CountingHeads.heads
            await asyncio.sleep(0)
            in_turns.append(CountingHeads.heads - before)
        # The first turn is for each of them.
        assert max(in_turns) <= len(clients) * FRAMES_PER_TURN
        assert len(in_turns) >= len(clients) * frames // FRAMES_PER_TURN // 2
        for client in clients:
            served.cancel(client.call)
            await served.released(client.call)


async def test_frames_that_break_the_protocol_close() -> None:
    app = Echo()
    async with serving(app) as served:
        client = Client(served)
        await client.accepted()
        client.send_raw(b"\x83\x80\x00\x00\x00\x00")  # An opcode that does not exist.
        assert 1002 == (await client.next()).code
        await served.released(client.call)
    assert [1002] == [code for code, _ in app.left]


@pytest.mark.parametrize("code", [0, 999, 1004, 1006, 1015, 1016, 2999, 5000, -1, "1000"])
async def test_a_code_that_no_frame_may_have_is_refused(code: Any) -> None:
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        try:
            await send({"type": "websocket.close", "code": code})
        except RuntimeError as error:
            refused.append(str(error))
        await send({"type": "websocket.close", "code": 4999})

    async with serving(app) as served:
        client = Client(served)
        close = await client.next()
        assert 4999 == close.code
        client.send(close.response())
        await served.released(client.call)
    assert 1 == len(refused)
    assert repr(code) in refused[0]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([{"type": "websocket.close"}], ("respond", 403, ((b"content-length", b"0"),), b"")),
        (
            [
                {"type": "websocket.http.response.start", "status": 402, "headers": [(b"A", b"b")]},
                {"type": "websocket.http.response.body", "body": b"pay"},
            ],
            ("respond", 402, ((b"A", b"b"),), b"pay"),
        ),
    ],
)
async def test_denials(sent: list[Any], expected: tuple[Any, ...]) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for message in sent:
            await send(message)
        seen.append(await receive())

    async with serving(app) as served:
        commands = await served.released(Client(served).call)
    assert [expected] == commands
    assert [1006] == [message["code"] for message in seen]


@pytest.mark.parametrize(("result", "text"), [(None, "without an answer"), (1, "returned 1")])
async def test_websockets_without_an_answer_are_few_lines_of_the_log(
    result: object,
    text: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowance = Allowance(at_once=20, per_s=5.0, clock=lambda: 0.0)
    monkeypatch.setattr(failures._LINES, "admit", allowance.admit)

    async def app(scope: Any, receive: Any, send: Any) -> object:
        return result

    async with serving(app) as served:
        for _ in range(40):
            (command,) = await served.released(Client(served).call)
            assert ("respond", 500) == command[:2]
    # One that is the first of its kind, and twenty at once.
    lines = [each.getMessage() for each in caplog.records if each.name == websocket.__name__]
    assert 21 == len(lines)
    assert all(text in line for line in lines)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([{"type": "websocket.send", "text": "x"}], "expected 'websocket.accept'"),
        ([ACCEPT, ACCEPT], "expected 'websocket.send'"),
        ([{**ACCEPT, "subprotocol": "x"}], "did not offer"),
        (
            [{"type": "websocket.http.response.start", "status": 400}, ACCEPT],
            "expected 'websocket.http.response.body'",
        ),
        (
            [ACCEPT, {"type": "websocket.close"}, {"type": "websocket.close"}],
            "after 'websocket.close'",
        ),
    ],
)
async def test_messages_out_of_their_turn_are_refused(
    sent: list[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for the message after the close, also on a machine that stands still.
    monkeypatch.setattr(websocket, "_CLOSE_TIMEOUT_S", 1.0)
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            for message in sent:
                await send(message)
        except RuntimeError as error:
            refused.append(str(error))
            raise

    async with serving(app) as served:
        await served.released(Client(served).call)
    assert 1 == len(refused)
    assert text in refused[0]
