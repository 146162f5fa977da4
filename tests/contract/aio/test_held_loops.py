"""Pieces of handlers that compute on the loop leave one by one, and not all at the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import httpx
import pytest

from pyserve.aio import ServerSettings
from pyserve.aio._server import Server

TIMEOUT_S = 20.0
PIECES = 4
COMPUTES_S = 0.002
_PATH = "/tests.Held/Stream"


class Steps:
    """Holds the loop after each piece until its reader has got it."""

    def __init__(self) -> None:
        self._read = [threading.Event() for _ in range(PIECES)]

    def hold(self, number: int) -> None:
        assert self._read[number].wait(TIMEOUT_S), f"piece {number} did not come"
        time.sleep(COMPUTES_S)

    def read(self, number: int) -> None:
        self._read[number].set()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def address(steps: Steps) -> AsyncIterator[str]:
    async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(PIECES):
            yield b"%d" % number
            steps.hold(number)

    async def answer(http: Any) -> None:
        http.start(200, ())
        for number in range(PIECES):
            await http.write(b"%d" % number)
            steps.hold(number)
        http.end()

    server = Server(settings=ServerSettings(http=answer))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Stream": grpc.unary_stream_rpc_method_handler(stream)
    }
    server.add_registered_method_handlers("tests.Held", handlers)
    port = server.native.listen_tcp("127.0.0.1:0", None, False, doors=True)
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def by_grpc(address: str, steps: Steps) -> list[bytes]:
    with grpc.insecure_channel(address) as channel:
        got = []
        stream: Any = channel.unary_stream(_PATH)
        for number, piece in enumerate(stream(b"", timeout=TIMEOUT_S)):
            got.append(piece)
            steps.read(number)
        return got


def by_http(address: str, steps: Steps) -> list[bytes]:
    with httpx.stream("GET", f"http://{address}/", timeout=TIMEOUT_S) as answer:
        got = []
        for number, piece in enumerate(answer.iter_raw()):
            got.append(piece)
            steps.read(number)
        return got


@pytest.mark.parametrize("client", [by_grpc, by_http])
async def test_each_piece_leaves_before_the_next_is_computed(
    address: str, steps: Steps, client: Callable[[str, Steps], list[bytes]]
) -> None:
    got = await asyncio.to_thread(client, address, steps)
    assert [b"%d" % number for number in range(PIECES)] == got
