"""The work-around of a fault of grpcio's asyncio client that tests rely on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from services.echo import echo_pb2, echo_pb2_grpc

_CALLS = 500


class _Refusing(echo_pb2_grpc.EchoServicer):
    async def Converse(self, requests: object, context: Any) -> AsyncIterator[object]:
        await context.abort(grpc.StatusCode.NOT_FOUND, "nothing")
        yield requests


async def test_a_call_that_ends_while_its_client_writes_has_the_servers_status():
    server = grpc.aio.server()
    echo_pb2_grpc.add_EchoServicer_to_server(_Refusing(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = echo_pb2_grpc.EchoStub(channel)

            async def status() -> object:
                call = stub.Converse(iter([echo_pb2.PerformRequest()] * 3), timeout=30)
                return await call.code()

            ended = Counter(await asyncio.gather(*(status() for _ in range(_CALLS))))
    finally:
        await server.stop(None)
    assert {grpc.StatusCode.NOT_FOUND: _CALLS} == ended
