"""How calls come to a deployment: plain HTTP, gRPC, or a handle.

The HTTP client is written here because a general one takes more time for a call than the mesh, and
the load generator has to stay below half of a core.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import grpc.aio

from benchmarks.mix_changes.applications import DEPLOYMENT
from benchmarks.mix_changes.cases import Door
from pyserve import DeploymentHandle
from pyserve.serializers import codec, join

# Makes one call of so many milliseconds; raises what went wrong.
Call = Callable[[float], Awaitable[None]]
# Beyond it calls wait in the client, whose latency counts from when they were due.
_CONNECTIONS_MAX = 1000
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length: "


class WrongAnswerError(Exception):
    """The answer is not that of the call."""


class HttpStatusError(Exception):
    """The status of the answer is not 200; the text says which."""


class _Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface and not the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answer is None or self._answer.done() or _HEAD_END not in self._received:
            return
        head, _, body = self._received.partition(_HEAD_END)
        length = int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._received = b""
            self._answer.set_result((int(head.split(b" ", 2)[1]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the ingress hung up"))

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class HttpClient:
    """Posts to one path by as many connections as calls are under way."""

    def __init__(self, address: str, path: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._head = (
            f"POST {path} HTTP/1.1\r\nhost: {address}\r\n"
            "content-type: application/json\r\ncontent-length: "
        ).encode()
        self._idle: list[_Connection] = []
        self._free = asyncio.Semaphore(_CONNECTIONS_MAX)

    async def call(self, ms: float) -> None:
        """Make one call.

        Raises:
            HttpStatusError: It was not answered with 200.
            WrongAnswerError: The body is another call's.
            OSError: The connection broke, or could not be made.
        """
        body = str(ms).encode()
        async with self._free:
            connection = await self._connection()
            try:
                request = self._head + f"{len(body)}\r\n\r\n".encode() + body
                status, answer = await connection.ask(request)
            except BaseException:
                # The answer may come later, and is not the next call's.
                connection.close()
                raise
            self._idle.append(connection)
        if status != 200:
            raise HttpStatusError(status)
        _check(ms, float(answer))

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(_Connection, self._host, int(self._port))
        return made

    def close(self) -> None:
        """Close the connections that no call uses."""
        for connection in self._idle:
            connection.close()


def _check(ms: float, answer: object) -> None:
    if answer != ms:
        raise WrongAnswerError(f"{answer} in place of {ms}")


@contextlib.asynccontextmanager
async def opened(
    door: Door, address: str, application: str, handle: DeploymentHandle
) -> AsyncIterator[Call]:
    """Yield what calls an application by a door.

    Args:
        door: Which one.
        address: Of the ingress.
        application: Its name; its route prefix is the name after a slash.
        handle: Of its deployment.
    """
    if door == "http":
        client = HttpClient(address, f"/{application}")
        try:
            yield client.call
        finally:
            client.close()
    elif door == "grpc":
        async with grpc.aio.insecure_channel(address) as channel:
            yield _grpc_call(channel, application)
    else:

        async def call(ms: float) -> None:
            _check(ms, await handle.remote(ms))

        yield call


def _grpc_call(channel: grpc.aio.Channel, application: str) -> Call:
    proto = codec("proto")
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        f"/{application}.{DEPLOYMENT}/__call__"
    )

    async def call(ms: float) -> None:
        answer = await method(join(proto.encode_call((ms,), {})))
        _check(ms, proto.decode(answer))

    return call
