"""WebSocket clients: the package websockets, and the one that is built into Node.js."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.extensions.permessage_deflate import PerMessageDeflate

from tests.contract.foreign.names import SUBPROTOCOL
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
_NODE_FOLDER = Path(__file__).parent / "node"
_TIMEOUT_S = 20.0
_NO_CODE = 1006  # RFC 6455, 7.1.5: the client has closed nothing


@asynccontextmanager
async def opened(address: str, **options: object) -> AsyncIterator[ClientConnection]:
    """Open the echoing socket, for a bounded time."""
    async with (
        asyncio.timeout(_TIMEOUT_S),
        connect(f"ws://{address}/socket", **options) as socket,  # type: ignore[arg-type]
    ):
        yield socket


async def test_texts_and_bytes_come_back(web_address: str):
    async with opened(web_address) as socket:
        for message in ("größer", b"\0\xff", "", b"", "x" * 65_536):
            await socket.send(message)
            assert message == await socket.recv()


async def test_a_message_in_fragments_comes_back_whole(web_address: str):
    async with opened(web_address, compression=None) as socket:
        await socket.send(["one ", "", "message ", "in four"])
        assert "one message in four" == await socket.recv()


async def test_large_messages_pass(web_address: str):
    message = bytes(range(256)) * (8 * MIB // 256)
    async with opened(web_address, max_size=None, compression=None) as socket:
        await socket.send(message)
        assert message == await socket.recv()


async def test_many_messages_keep_their_order(web_address: str):
    async with opened(web_address) as socket:
        sender = asyncio.create_task(_send(socket, 1000))
        assert [str(number) for number in range(1000)] == [await socket.recv() for _ in range(1000)]
        await sender


async def _send(socket: ClientConnection, count: int) -> None:
    for number in range(count):
        await socket.send(str(number))


async def test_a_subprotocol_is_agreed(web_address: str):
    async with opened(web_address, subprotocols=["other", SUBPROTOCOL]) as socket:
        assert SUBPROTOCOL == socket.subprotocol
    async with opened(web_address, subprotocols=["other"]) as socket:
        assert socket.subprotocol is None


async def test_compression_is_agreed(web_address: str):
    """Replicas offer permessage-deflate, as other servers do."""
    async with opened(web_address, compression="deflate") as socket:
        assert [PerMessageDeflate] == [type(each) for each in socket.protocol.extensions]
        await socket.send("x" * MIB)
        assert "x" * MIB == await socket.recv()


async def test_a_ping_is_answered(web_address: str):
    async with opened(web_address) as socket:
        assert await (await socket.ping(b"are you there")) >= 0


async def test_the_server_closes_with_its_code(web_address: str):
    async with asyncio.timeout(_TIMEOUT_S), connect(f"ws://{web_address}/closing") as socket:
        assert "bye" == await socket.recv()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert (4001, "as planned") == (closed.value.rcvd.code, closed.value.rcvd.reason)


async def test_the_application_sees_how_the_client_closes(web_address: str):
    code = 4002
    async with opened(web_address) as socket:
        await socket.close(code, "done")
    await eventually(lambda: _has_closed(web_address, code), what="the code arrives")


async def test_the_application_sees_a_client_that_is_gone(web_address: str):
    before = (await _closed(web_address)).count(_NO_CODE)
    async with opened(web_address) as socket:
        await socket.send("here")
        assert "here" == await socket.recv()
        socket.transport.abort()

    async def arrived() -> bool:
        return (await _closed(web_address)).count(_NO_CODE) == before + 1

    await eventually(arrived, what="the end arrives")


async def _has_closed(address: str, code: int) -> bool:
    return code in await _closed(address)


async def _closed(address: str) -> list[int]:
    async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
        codes: list[int] = (await client.get(f"http://{address}/closed")).json()
        return codes


async def test_a_refused_handshake_is_403(web_address: str):
    with pytest.raises(InvalidStatus) as refused:
        async with asyncio.timeout(_TIMEOUT_S), connect(f"ws://{web_address}/refused"):
            pass
    assert 403 == refused.value.response.status_code


@pytest.mark.external
def test_the_client_of_node(web_address: str):
    if (reason := _why_no_node_socket()) is not None:
        pytest.skip(reason)
    command = ["node", *_NODE_FLAGS, "socket.mjs", f"ws://{web_address}/socket", SUBPROTOCOL]
    ended = subprocess.run(
        command, cwd=_NODE_FOLDER, capture_output=True, text=True, timeout=30, check=True
    )
    expected = {
        "protocol": SUBPROTOCOL,
        "received": ["größer", "", "x" * 100_000],
        "code": 4000,
        "wasClean": True,
    }
    assert expected == json.loads(ended.stdout)


# Built in from Node.js 22 on, and behind this switch since 20.10.
_NODE_FLAGS = ("--experimental-websocket", "--no-warnings")


def _why_no_node_socket() -> str | None:
    if shutil.which("node") is None:
        return "node is not installed"
    script = "process.exit(typeof WebSocket === 'function' ? 0 : 1)"
    ended = subprocess.run(
        ["node", *_NODE_FLAGS, "-e", script], capture_output=True, timeout=30, check=False
    )
    return None if ended.returncode == 0 else "this Node.js has no WebSocket"
