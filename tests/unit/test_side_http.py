"""A server beside a process's work waits for no client without an end, and holds few."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pyserve import side_http
from pyserve.config.tls import TlsFiles
from pyserve.side_http import CONNECTIONS_MAX, SideServer
from tests.support.authority import Authority

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


async def test_requests_under_way_stay() -> None:
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


async def test_its_failures_are_logged_seldom(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError(Request(scope).headers.get("x", ""))

    with caplog.at_level(logging.WARNING):
        async with serving(broken) as place:
            for number in range(3):
                with closing(await connected(place)) as client:
                    await sent(client, GET[:-2] + b"x: %d\r\nconnection: close\r\n\r\n" % number)
                    assert (await received(client)).startswith(b"HTTP/1.1 500 ")
    assert 1 == len([each for each in caplog.records if each.exc_info])
