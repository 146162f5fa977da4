"""The implementations under test, and a small network of one server and its channels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

import pyserve.aio

SERVICE = "contract.Service"
PATIENCE_S = 30.0  # bound of every wait; what is waited for comes in milliseconds
T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """One implementation of grpc.aio's interface."""

    name: str
    server: Callable[..., Any]
    insecure_channel: Callable[..., Any]
    secure_channel: Callable[..., Any]
    ssl_server_credentials: Callable[..., Any]


GRPCIO = Side(
    "grpcio",
    grpc.aio.server,
    grpc.aio.insecure_channel,
    grpc.aio.secure_channel,
    grpc.ssl_server_credentials,
)
PYSERVE = Side(
    "pyserve",
    pyserve.aio.server,
    pyserve.aio.insecure_channel,
    pyserve.aio.secure_channel,
    pyserve.aio.ssl_server_credentials,
)
SIDES = (GRPCIO, PYSERVE)


def unary(function: Callable[..., Any]) -> Any:
    """One request, one response, both as bytes."""
    return grpc.unary_unary_rpc_method_handler(function)


def responses(function: Callable[..., Any]) -> Any:
    """One request, a stream of responses."""
    return grpc.unary_stream_rpc_method_handler(function)


def requests(function: Callable[..., Any]) -> Any:
    """A stream of requests, one response."""
    return grpc.stream_unary_rpc_method_handler(function)


def both(function: Callable[..., Any]) -> Any:
    """Streams both ways."""
    return grpc.stream_stream_rpc_method_handler(function)


async def within(awaitable: Awaitable[T]) -> T:
    """Await with a bound."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


@dataclass
class Network:
    """Makes servers and channels of the sides under test, and ends them with the test."""

    server_side: Side
    client_side: Side
    _servers: list[Any] = field(default_factory=list)
    _channels: list[Any] = field(default_factory=list)

    def new_server(self, methods: Mapping[str, Any], **arguments: Any) -> Any:
        server = self.server_side.server(**arguments)
        server.add_registered_method_handlers(SERVICE, dict(methods))
        self._servers.append(server)
        return server

    async def start(self, methods: Mapping[str, Any], **arguments: Any) -> tuple[Any, str]:
        """Serve ``methods`` and return the server with its address."""
        server = self.new_server(methods, **arguments)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"

    def channel(self, target: str, **arguments: Any) -> Any:
        channel = self.client_side.insecure_channel(target, **arguments)
        self._channels.append(channel)
        return channel

    def secure_channel(self, target: str, credentials: Any, **arguments: Any) -> Any:
        channel = self.client_side.secure_channel(target, credentials, **arguments)
        self._channels.append(channel)
        return channel

    async def serve(self, methods: Mapping[str, Any], **arguments: Any) -> Stub:
        """Serve ``methods`` and return a stub of them."""
        _, address = await self.start(methods, **arguments)
        return Stub(self.channel(address))

    async def close(self) -> None:
        for channel in self._channels:
            await within(channel.close())
        for server in self._servers:
            await within(server.stop(None))


class Stub:
    """The methods of the service on a channel, by kind."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def unary(self, name: str = "Call") -> Any:
        return self.channel.unary_unary(f"/{SERVICE}/{name}", _registered_method=True)

    def responses(self, name: str = "Call") -> Any:
        return self.channel.unary_stream(f"/{SERVICE}/{name}", _registered_method=True)

    def requests(self, name: str = "Call") -> Any:
        return self.channel.stream_unary(f"/{SERVICE}/{name}", _registered_method=True)

    def both(self, name: str = "Call") -> Any:
        return self.channel.stream_stream(f"/{SERVICE}/{name}", _registered_method=True)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    """Return the error that a call, awaited or iterated over, ends with."""
    try:
        if hasattr(call, "__await__"):
            response: object = await within(call)
        else:
            response = await within(collect(call))
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"the call was to fail, but returned {response!r}")


async def collect(call: Any) -> list[Any]:
    """Return every response of a call."""
    return [response async for response in call]


async def echo(request: bytes, _context: Any) -> bytes:
    """Return the request."""
    return request
