"""Requests that come without anything to await: a file, a camera, a plain generator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from pyserve import aio

REQUESTS_MAX = 200_000
_PATH = "/tests.Busy/Upload"


class _Refusing(grpc.GenericRpcHandler):
    """Takes one request, and aborts; or none, and waits."""

    def service(self, _details: Any) -> Any:
        def upload(requests: Any, context: grpc.ServicerContext) -> bytes:
            next(requests)
            context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

        return grpc.stream_unary_rpc_method_handler(upload)


@pytest.fixture
def address() -> Any:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[_Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture(params=[aio, grpc.aio], ids=["ours", "grpc"])
async def channel(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Any]:
    async with request.param.insecure_channel(address) as channel:
        yield channel


class Busy:
    """Counts the requests that are taken; bounded, so that a failing test ends."""

    def __init__(self) -> None:
        self.made = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for each in self:
            yield each

    def __iter__(self) -> Any:
        for _ in range(REQUESTS_MAX):
            self.made += 1
            yield b"x" * 100


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_ended_call_takes_no_more_requests(channel: Any, is_async: bool) -> None:
    busy = Busy()
    requests = busy if is_async else iter(busy)
    with pytest.raises(grpc.RpcError) as caught:
        await channel.stream_unary(_PATH)(requests, timeout=30)
    assert grpc.StatusCode.NOT_FOUND is caught.value.code()
    assert busy.made < REQUESTS_MAX / 10


async def test_a_writer_is_told_that_the_call_has_ended(channel: Any) -> None:
    call, busy = channel.stream_unary(_PATH)(timeout=30), Busy()

    async def write_all() -> None:
        for each in busy:
            await call.write(each)

    with pytest.raises((asyncio.InvalidStateError, grpc.RpcError)):
        await write_all()
    assert busy.made < REQUESTS_MAX / 10
    assert grpc.StatusCode.NOT_FOUND is await call.code()
