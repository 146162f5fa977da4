"""How long a routing table waits for replicas that are there and say nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from pyserve import _router, aio
from pyserve.aio import ServerSettings
from tests.support.routes import native_route, replica_view

_TOKEN = b"token"
# Of a call: its end by this would mean that no other limit acted.
_PATIENCE_S = 30.0
_LIMIT_S = 1.0


def channel(
    address: str, *, connect_timeout_s: float = 2.0, idle_timeout_s: float | None = None
) -> aio.Channel:
    """Return a channel to the only replica of a table with these limits."""
    table = _router.RoutingTable(
        node="n",
        zone="",
        token=_TOKEN,
        seed=1,
        connect_timeout_s=connect_timeout_s,
        idle_timeout_s=idle_timeout_s,
    )
    route = native_route(
        [replica_view("r-1", address, node="other")],
        {"app.Echo": None},
        max_queued_requests=0,
        max_request_bytes=1024,
    )
    table.apply(1, [route])
    return aio.Channel(_router.Channel("app/Echo", table=table))


@asynccontextmanager
async def replica() -> AsyncIterator[str]:
    """Serve methods that are silent for as long as the request says, in seconds."""

    async def unary(request: bytes, _context: aio.ServicerContext) -> bytes:
        await asyncio.sleep(float(request))
        return b"done"

    async def stream(request: bytes, _context: aio.ServicerContext) -> AsyncIterator[bytes]:
        for _ in range(4):
            await asyncio.sleep(float(request))
            yield b"more"

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    server = aio.Server(settings=ServerSettings(replica_id="r-1", token=_TOKEN))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("app.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@pytest.mark.parity("S-66")
async def test_replica_that_is_silent_for_too_long_fails_the_call() -> None:
    async with replica() as address, channel(address, idle_timeout_s=_LIMIT_S) as opened:
        call = opened.unary_unary("/app.Echo/Unary")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"30", timeout=_PATIENCE_S)

        assert grpc.StatusCode.UNAVAILABLE is caught.value.code()
        assert "the replica has sent nothing for 1 s" == caught.value.details()
        assert b"done" == await call(b"0", timeout=_PATIENCE_S)


@pytest.mark.parity("S-66")
async def test_replica_that_speaks_now_and_then_may_take_longer_in_all() -> None:
    async with replica() as address, channel(address, idle_timeout_s=_LIMIT_S) as opened:
        stream = opened.unary_stream("/app.Echo/Stream")

        answers = [answer async for answer in stream(b"0.3", timeout=_PATIENCE_S)]

    assert [b"more"] * 4 == answers


@pytest.mark.parity("S-66")
async def test_silence_is_without_a_limit_by_default() -> None:
    async with replica() as address, channel(address) as opened:
        assert b"done" == await opened.unary_unary("/app.Echo/Unary")(b"0.6", timeout=_PATIENCE_S)


@pytest.mark.parity("S-67")
async def test_dialling_a_replica_that_never_greets_has_a_limit() -> None:
    # Its kernel accepts connections, and nobody reads what they say.
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = "{}:{}".format(*deaf.getsockname())
        async with channel(address, connect_timeout_s=_LIMIT_S) as opened:
            started = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await opened.unary_unary("/app.Echo/Unary")(b"0", timeout=_PATIENCE_S)

    assert "cannot connect to" in str(caught.value.details())
    assert _LIMIT_S <= time.monotonic() - started < _PATIENCE_S
