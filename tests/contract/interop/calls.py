"""What the cases share: the ends of a call, payloads, and how a call that failed is looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

import pyserve.aio
from tests.contract.interop import interop_pb2 as pb
from tests.contract.interop.interop_pb2_grpc import TestServiceStub

TIMEOUT_S = 20.0
EOF = grpc.aio.EOF

# The sizes that the cases are described with.
REQUEST_BYTES = (27182, 8, 1828, 45904)
RESPONSE_BYTES = (31415, 9, 2653, 58979)


@dataclass(frozen=True)
class Client:
    """One implementation of grpc.aio's channels, and where it is to call.

    Attributes:
        open_channel: ``insecure_channel`` of the implementation.
        address: Of the server, "host:port".
    """

    name: str
    open_channel: Callable[..., Any]
    address: str

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[Any]:
        """Open a channel that shares no connection with others, until the block ends."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with self.open_channel(self.address, options=options) as channel:
            yield channel

    @contextlib.asynccontextmanager
    async def stub(self) -> AsyncIterator[Any]:
        """Open a channel, and give the stub of the test service on it."""
        async with self.channel() as channel:
            yield TestServiceStub(channel)


CLIENTS = {"grpcio": grpc.aio.insecure_channel, "pyserve": pyserve.aio.insecure_channel}


def zeros(size_bytes: int) -> pb.Payload:
    """Return a payload, which compresses well."""
    return pb.Payload(body=bytes(size_bytes))


def wanted(*sizes: int, payload_bytes: int = 0) -> pb.StreamingOutputCallRequest:
    """Ask for answers of these sizes."""
    return pb.StreamingOutputCallRequest(
        response_parameters=[pb.ResponseParameters(size=size) for size in sizes],
        payload=zeros(payload_bytes),
    )


def size_of(response: Any) -> int:
    """Return the size of an answer's payload, in bytes."""
    return len(response.payload.body)


async def within(awaitable: Awaitable[Any]) -> Any:
    """Await with a bound, beside the deadlines of calls."""
    return await asyncio.wait_for(awaitable, TIMEOUT_S)


async def failure(awaitable: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """Return the code and the text that the call ends with, which must not succeed."""
    try:
        response = await within(awaitable)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError(f"the call was to fail, but returned {response!r}")


async def converse(call: Any, *requests: Any) -> list[Any]:
    """Send each request and read its answer before the next one, then read to the end."""
    responses = []
    for request in requests:
        await call.write(request)
        responses.append(await call.read())
    await call.done_writing()
    assert EOF == await call.read()
    return responses
