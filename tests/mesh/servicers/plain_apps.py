"""Plain classes whose methods have the names of RPCs, as Ray Serve's users write them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator

import grpc

import pyserve as serve
from pyserve.grpc_util import RayServegRPCContext, gRPCInputStream
from services.echo import echo_pb2
from tests.contract.interop import interop_pb2


@serve.deployment
class Below:
    """Has a name of an RPC too, but does not answer for the application."""

    def Echo(self, value: bytes) -> bytes:
        return value[::-1]


@serve.deployment
class Plain:
    def __init__(self, below: serve.DeploymentHandle) -> None:
        self._below = below

    async def Echo(self, request: echo_pb2.EchoRequest, threshold: float = 0.5) -> object:
        turned = await self._below.Echo.remote(request.payload)
        return echo_pb2.EchoReply(payload=turned + f" {threshold}".encode())

    def EchoSync(self, request: echo_pb2.EchoRequest) -> object:
        time.sleep(0.01)
        return echo_pb2.EchoReply(payload=request.payload)

    def EchoSuspend(
        self, request: echo_pb2.EchoRequest, *, grpc_context: RayServegRPCContext
    ) -> object:
        metadata = dict(grpc_context.invocation_metadata() or ())
        grpc_context.set_trailing_metadata([("seen", str(metadata["sent"]))])
        if request.payload == b"missing":
            grpc_context.set_code(grpc.StatusCode.NOT_FOUND)
            grpc_context.set_details("no such thing")
            raise KeyError("missing")
        return echo_pb2.EchoReply(payload=serve.get_multiplexed_model_id().encode())

    def EchoStream(self, request: echo_pb2.StreamRequest) -> object:
        return self._numbers(request) if request.payload == b"async" else self._steps(request)

    async def PerformStream(self, request: echo_pb2.PerformStreamRequest) -> object:
        await asyncio.sleep(0)
        return (echo_pb2.PerformReply(payload=b"%d" % n) for n in range(request.messages))

    def PerformStreamSync(
        self, request: echo_pb2.PerformStreamRequest, grpc_context: RayServegRPCContext
    ) -> Iterator[object]:
        grpc_context.set_trailing_metadata([("messages", str(request.messages))])
        for number in range(request.messages):
            yield echo_pb2.PerformReply(payload=b"%d" % number)

    async def Collect(self, requests: gRPCInputStream[echo_pb2.PerformRequest]) -> object:
        sizes = [len(request.payload) async for request in requests]
        return echo_pb2.CollectReply(messages=len(sizes), payload_bytes=sum(sizes))

    def Converse(self, requests: gRPCInputStream[echo_pb2.PerformRequest]) -> object:
        return self._turned(requests)

    def Count(self) -> int:
        """For handles: it takes no request."""
        return 7

    async def _numbers(self, request: echo_pb2.StreamRequest) -> AsyncIterator[object]:
        for number in range(request.messages):
            yield echo_pb2.EchoReply(payload=b"async %d" % number)

    def _steps(self, request: echo_pb2.StreamRequest) -> Iterator[object]:
        for number in range(request.messages):
            yield echo_pb2.EchoReply(payload=b"sync %d" % number)

    async def _turned(self, requests: gRPCInputStream[echo_pb2.PerformRequest]) -> object:
        async for request in requests:
            yield echo_pb2.PerformReply(payload=request.payload[::-1])


@serve.deployment
class Mistaken:
    """Its methods have names of RPCs, and none can be called as its RPC."""

    def Echo(self, request: object, context_by_another_name: object) -> object:
        return request, context_by_another_name

    async def EchoSuspend(self, request: object, grpc_context: object, extra: object) -> object:
        return request, grpc_context, extra

    def EchoSync(self, request: object) -> Iterator[object]:
        yield request

    async def EchoStream(
        self, request: object, *, first: int, second: int
    ) -> AsyncIterator[object]:
        yield request, first, second

    def PerformStreamSync(self, grpc_context: object) -> Iterator[object]:
        yield grpc_context

    @serve.batch
    async def Perform(self, requests: list[object], extra: list[object]) -> list[object]:
        return [requests, extra]

    async def Converse(self, requests: object, extra: object) -> AsyncIterator[object]:
        yield requests, extra

    @staticmethod
    def Collect() -> None:
        """It takes nothing."""


def _with_more(method: Callable[..., object]) -> Callable[..., object]:
    """Give a method one argument more than its caller has."""

    @functools.wraps(method)
    def call(self: object, request: object) -> object:
        return method(self, request, b"more")

    return call


@serve.deployment(max_receive_message_bytes=1_000)
class Narrow:
    def EchoSync(self, request: echo_pb2.EchoRequest) -> object:
        return echo_pb2.EchoReply(payload=request.payload)


@serve.deployment
class Decorated:
    @_with_more
    def Echo(self, request: echo_pb2.EchoRequest, more: bytes) -> object:
        return echo_pb2.EchoReply(payload=request.payload + more)


@serve.deployment
class Other:
    async def Echo(self, request: echo_pb2.EchoRequest) -> object:
        return echo_pb2.EchoReply(payload=b"other")

    def EmptyCall(self, request: interop_pb2.Empty) -> object:
        return request


app = Plain.bind(Below.bind())
other = Other.bind()
mistaken = Mistaken.bind()
decorated = Decorated.bind()
narrow = Narrow.bind()
