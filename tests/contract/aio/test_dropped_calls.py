"""Calls that their callers have dropped end, whichever thread's collection finds them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pyserve import aio
from tests.contract.aio.sides import within

_PATH = "/tests.Dropped/Wait"


class _Untouched(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        return await continuation(client_call_details, request)


@pytest.fixture
async def cancelled() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def address(cancelled: asyncio.Event) -> AsyncIterator[str]:
    async def wait(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    server = aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Wait": grpc.unary_stream_rpc_method_handler(wait)
    }
    server.add_registered_method_handlers("tests.Dropped", handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.mark.parametrize("interceptors", [(), (_Untouched(),)], ids=["plain", "intercepted"])
async def test_a_stream_is_cancelled_on_its_loop_by_any_threads_collection(
    address: str, cancelled: asyncio.Event, interceptors: tuple[Any, ...]
) -> None:
    """An iterated stream is a reference cycle; loops do not like to be touched by others."""
    loop = asyncio.get_running_loop()
    async with aio.insecure_channel(address, interceptors=interceptors) as channel:
        gc.collect()
        gc.disable()
        try:
            call: Any = channel.unary_stream(_PATH)(b"")
            assert b"first" == await within(anext(aiter(call)))
            # From now on it raises where another thread schedules something.
            loop.set_debug(True)
            kept = [call]
            kept.append(kept)
            del call, kept
            await asyncio.to_thread(gc.collect)
            await within(cancelled.wait())
        finally:
            loop.set_debug(False)
            gc.enable()
