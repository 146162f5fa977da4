"""A server beside a process's work waits for no client without an end, and holds few."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pyserve import side_http
from pyserve.config.tls import TlsFiles
from pyserve.side_http import CONNECTIONS_MAX, SideServer
from tests.support.authority import Authority
from tests.support.waiting import eventually

GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
PATIENCE_S = 0.2
TIMEOUT_S = 30.0


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("hello")(scope, receive, send)


@asynccontextmanager
async def serving(
    application: ASGIApp = hello, tls: TlsFiles | None = None
) -> AsyncIterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = SideServer(application, listener, tls=tls)
    server.start()
    try:
        yield listener.getsockname()
    finally:
        await server.close()


async def connected(place: tuple[str, int]) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.get_running_loop().sock_connect(client, place)
    return client


async def sent(client: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(client, data)


async def received(client: socket.socket) -> bytes:
    """Return what comes until the end of the connection."""
    data = b""
    async with asyncio.timeout(TIMEOUT_S):
        try:
            while piece := await asyncio.get_running_loop().sock_recv(client, 65_536):
                data += piece
        except ConnectionResetError:
            pass
    return data


async def answered(client: socket.socket) -> bool:
    """Ask; return whether there is an answer."""
    await sent(client, GET)
    async with asyncio.timeout(TIMEOUT_S):
        return (await asyncio.get_running_loop().sock_recv(client, 1024)).startswith(
            b"HTTP/1.1 200"
        )


@pytest.mark.parametrize("said", [b"", GET[:-2], GET[:5]])
async def test_who_does_not_ask_in_time_has_to_go(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(side_http, "HEAD_TIMEOUT_S", PATIENCE_S)
    async with serving() as place:
        with closing(await connected(place)) as client:
            await sent(client, said)
            assert await received(client) == b""


async def test_what_drips_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_http, "HEAD_TIMEOUT_S", PATIENCE_S)
    async with serving() as place:
        with closing(await connected(place)) as client:
            assert await answered(client)
            await sent(client, GET[:-2] + b"x: ")
            end = asyncio.create_task(received(client))
            while not end.done():
                try:
                    await sent(client, b"y")
                except OSError:
                    break
                await asyncio.wait([end], timeout=PATIENCE_S / 10)
            assert b"" == await end


async def test_who_has_rested_longest_goes_for_who_comes() -> None:
    async with serving() as place:
        crowd = [await connected(place) for _ in range(CONNECTIONS_MAX)]
        assert all([await answered(each) for each in crowd])
        crowd.append(await connected(place))

        assert await answered(crowd[-1])
        assert b"" == await received(crowd[0])
        assert await answered(crowd[1])
        for each in crowd:
            each.close()


async def test_clients_that_come_at_once_have_all_places() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS_MAX)
    crowd = [await connected(listener.getsockname()) for _ in range(CONNECTIONS_MAX)]
    server = SideServer(hello, listener, tls=None)
    server.start()
    try:
        for _ in range(10 * CONNECTIONS_MAX):  # Turns of the loop, each of which accepts one.
            await asyncio.sleep(0)
        assert all([await answered(each) for each in crowd])
    finally:
        await server.close()
        for each in crowd:
            each.close()


async def test_who_asks_without_end_keeps_no_place_from_who_comes() -> None:
    """Each has sent its next requests before it is answered, and reads all answers."""
    busy: set[int] = set()

    async def ask_on(client: socket.socket) -> None:
        with suppress(OSError):
            while True:
                await sent(client, 200 * GET)

    async def read_on(number: int, client: socket.socket) -> None:
        with suppress(OSError):
            while await asyncio.get_running_loop().sock_recv(client, 65_536):
                busy.add(number)

    async with serving() as place:
        crowd = [await connected(place) for _ in range(CONNECTIONS_MAX)]
        tasks = [asyncio.create_task(ask_on(each)) for each in crowd]
        tasks += [asyncio.create_task(read_on(*each)) for each in enumerate(crowd)]
        await eventually(lambda: len(busy) == CONNECTIONS_MAX, TIMEOUT_S)
        # Several times: who has come keeps its place until it is answered.
        for _ in range(3):
            with closing(await connected(place)) as late:
                assert await answered(late)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in crowd:
            each.close()


async def test_requests_in_a_row_begin_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one connection or in several."""
    monkeypatch.setattr(side_http, "_FREE_S", 10 * side_http._REQUEST_S)
    at_once, later = 10, 30
    begun: list[float] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(asyncio.get_running_loop().time())
        await hello(scope, receive, send)

    last = GET[:-2] + b"connection: close\r\n\r\n"
    async with serving(noting) as place:
        crowd = [await connected(place) for _ in range(2)]
        for each in crowd:
            await sent(each, ((at_once + later) // 2 - 1) * GET + last)
        for each in crowd:
            assert (at_once + later) // 2 == (await received(each)).count(b"hello")
            each.close()

    # The first of those that wait does so for as long as it takes at the most.
    took_s = begun[-1] - begun[0]
    assert took_s >= (later - 1) * side_http._REQUEST_S / side_http._SHARE


async def test_who_has_gone_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    is_busy, asked = True, []
    monkeypatch.setattr(side_http.Pace, "wait_s", lambda *_: PATIENCE_S if is_busy else 0.0)

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await hello(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    server = SideServer(noting, listener, tls=None)
    server.start()
    try:
        gone, stays = [await connected(listener.getsockname()) for _ in range(2)]
        await sent(gone, GET.replace(b"/", b"/gone", 1))
        await eventually(lambda: len(server._state.tasks) == 1, TIMEOUT_S)
        gone.close()
        await eventually(lambda: not server._state.tasks, TIMEOUT_S)
        is_busy = False
        with closing(stays):
            assert await answered(stays)
    finally:
        await server.close()

    assert ["/"] == asked


async def test_requests_under_way_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_http, "_ROOM_TIMEOUT_S", PATIENCE_S)
    arrived, released = asyncio.Semaphore(0), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.release()
        await released.wait()
        await hello(scope, receive, send)

    async with serving(slow) as place:
        crowd = [await connected(place) for _ in range(CONNECTIONS_MAX)]
        asking = [asyncio.create_task(answered(each)) for each in crowd]
        for _ in crowd:
            await arrived.acquire()
        with closing(await connected(place)) as late:
            assert b"" == await received(late)
        released.set()
        assert all(await asyncio.gather(*asking))
        for each in crowd:
            each.close()


async def test_who_takes_nothing_of_an_answer_has_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_http, "_STALL_TIMEOUT_S", PATIENCE_S)
    ended = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0)
                yield bytes(65_536)

        try:
            await StreamingResponse(pieces())(scope, receive, send)
        finally:
            ended.set()

    async with serving(endless) as place:
        with closing(await connected(place)) as client:
            await sent(client, GET)
            async with asyncio.timeout(TIMEOUT_S):
                await ended.wait()


async def test_a_body_that_does_not_come_is_not_awaited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reader(scope: Scope, receive: Receive, send: Send) -> None:
        async for _ in Request(scope, receive).stream():
            pass
        await hello(scope, receive, send)

    put = b"PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\n"
    async with serving(reader) as place:
        # Nor does it keep the places of others.
        crowd = [await connected(place) for _ in range(CONNECTIONS_MAX)]
        for each in crowd:
            await sent(each, put)
        with closing(await connected(place)) as late:
            assert await answered(late)
        for each in crowd:
            each.close()
        monkeypatch.setattr(side_http, "BODY_TIMEOUT_S", PATIENCE_S)
        for before in (b"", put + b"abc"):
            with closing(await connected(place)) as client:
                await sent(client, before + put + b"a")
                assert (await received(client)).count(b"hello") == (1 if before else 0)


async def test_a_body_that_nobody_wants_is_not_read_to_its_end() -> None:
    async with serving() as place:
        with closing(await connected(place)) as client:
            await sent(client, b"PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000000\r\n\r\n")
            assert (await received(client)).endswith(b"hello")


async def test_handshakes_are_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who says nothing where TLS is spoken is displaced, and goes by itself in the end."""
    leaf = Authority().issue("127.0.0.1")
    files = {"chain.pem": leaf.chain, "key.pem": leaf.key}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    tls = TlsFiles(cert_file=tmp_path / "chain.pem", key_file=tmp_path / "key.pem")
    async with serving(tls=tls) as place:
        crowd = [await connected(place) for _ in range(CONNECTIONS_MAX + 1)]
        assert b"" == await received(crowd[0])
        for each in crowd:
            each.close()
    monkeypatch.setattr(side_http, "HEAD_TIMEOUT_S", PATIENCE_S)
    async with serving(tls=tls) as place:
        with closing(await connected(place)) as client:
            assert b"" == await received(client)


async def test_its_failures_are_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError(Request(scope).headers.get("x", ""))

    with caplog.at_level(logging.WARNING):
        async with serving(broken) as place:
            for number in range(3):
                with closing(await connected(place)) as client:
                    await sent(client, GET[:-2] + b"x: %d\r\nconnection: close\r\n\r\n" % number)
                    assert (await received(client)).startswith(b"HTTP/1.1 500 ")
    assert 1 == len([each for each in caplog.records if each.exc_info])
