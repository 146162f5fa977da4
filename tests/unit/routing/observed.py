"""A native listener in front of a replica that answers at once, to observe the counts of calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from pyserve import _router, aio
from pyserve.aio import HttpCall, ServerSettings
from tests.support.routes import native_route, replica_view

TARGET = "app/Echo"
PATH = "/app.Echo/Call"
FAIL_PATH = "/app.Echo/Fail"
_TOKEN = b"token"
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Observed:
    """The listener, router and replica between a client and its answer."""

    ingress: _router.Ingress
    table: _router.RoutingTable
    server: aio.Server
    address: str
    channel: grpc.aio.Channel
    calls: list[_router.ServerCall]  # as the replica got them
    route: _router.DeploymentRoute

    async def call(self, path: str = PATH, metadata: tuple[tuple[str, str], ...] = ()) -> bytes:
        """Make one call of gRPC."""
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(path)
        return await method(b"ping", timeout=_PATIENCE_S, metadata=metadata)


async def _fail(_request: bytes, context: aio.ServicerContext) -> bytes:
    await context.abort(grpc.StatusCode.DATA_LOSS, "it is gone")
    raise AssertionError("abort raises")


async def _http(call: HttpCall) -> None:
    call.respond(202, (), b"later")


@asynccontextmanager
async def observed(records: _router.CallRecords | None = None) -> AsyncIterator[Observed]:
    """Listen, with one replica behind."""
    calls: list[_router.ServerCall] = []

    async def call(request: bytes, context: aio.ServicerContext) -> bytes:
        calls.append(context.call)
        return request * 2

    server = aio.Server(settings=ServerSettings(replica_id="r-1", token=_TOKEN, http=_http))
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Call": grpc.unary_unary_rpc_method_handler(call),
        "Fail": grpc.unary_unary_rpc_method_handler(_fail),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("app.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    table = _router.RoutingTable(node="n", zone="", token=_TOKEN, seed=1, records=records)
    route = _route(port)
    table.apply(1, [route])
    ingress = _router.Ingress(table, addresses=["127.0.0.1:0"], io_threads=1, tls=None)
    (address,) = ingress.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Observed(ingress, table, server, address, channel, calls, route)
    finally:
        ingress.drain()
        ingress.stop()
        await server.stop(0)


def _route(port: int) -> _router.DeploymentRoute:
    return native_route(
        [replica_view("r-1", port, node="other")],
        {"app.Echo": ["Call", "Fail"]},
        max_queued_requests=10,
        max_request_bytes=1024,
        http_prefixes=["/app"],
    )
