"""A deployment whose plain calls have the name of its ``.proto``'s service: each gets its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.api.handles.framing import STREAM
from pyserve.config import DeploymentOptions
from pyserve.config.ingress import IngressSettings
from pyserve.replica.checks import check_class
from pyserve.replica.loading import Loaded
from pyserve.replica.membership import ready
from pyserve.replica.servicers import find_services
from pyserve.replica.serving import make_server
from pyserve.wire.v1 import mesh_pb2
from services.echo import echo_pb2, echo_pb2_grpc
from tests.unit.replica.native_client import Client
from tests.unit.replica.plain.test_serving import (
    OK,
    TOKEN,
    UNIMPLEMENTED,
    failure,
    framed,
    value_of,
)

NAME = "services.echo.Echo"


class Echo(echo_pb2_grpc.EchoServicer):
    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0)
    async def Echo(self, requests: list[Any]) -> list[Any]:
        return [echo_pb2.EchoReply(payload=each.payload * 2) for each in requests]

    def EchoSync(self, request: Any) -> Any:
        return echo_pb2.EchoReply(payload=request.payload[::-1])

    async def EchoSuspend(self, request: Any, context: Any) -> Any:
        raise LookupError("a secret")

    async def EchoStream(self, request: Any) -> AsyncIterator[Any]:
        for _ in range(request.messages):
            yield echo_pb2.EchoReply(payload=request.payload)

    async def Collect(self, requests: AsyncIterator[Any]) -> Any:
        return echo_pb2.CollectReply(messages=len([each async for each in requests]))

    async def length(self, text: str) -> int:
        return len(text)


class PassOn(grpc.aio.ServerInterceptor):
    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        return await continuation(details)


def loaded_echo(interceptors: list[Any]) -> Loaded:
    services = find_services(Echo)
    methods, _ = check_class(Echo, services)
    return Loaded(Echo, DeploymentOptions(), services, methods, (), {}, interceptors)


@asynccontextmanager
async def serving(interceptors: list[Any]) -> AsyncIterator[Client]:
    server = make_server(
        loaded_echo(interceptors),
        Echo(),
        application="services.echo",
        deployment="Echo",
        replica_id="Echo#1",
        token=TOKEN,
        development=False,
        limits=IngressSettings(),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = Client("services.echo/Echo", port, TOKEN, "Echo#1")
    try:
        yield client
    finally:
        client.close()
        await server.stop(0)


INTERCEPTORS = pytest.mark.parametrize("interceptors", [[], [PassOn()]], ids=["bare", "passed on"])


@INTERCEPTORS
async def test_clients_get_the_rpc_and_handles_the_method(interceptors: list[Any]) -> None:
    request = echo_pb2.EchoRequest(payload=b"ab")
    async with serving(interceptors) as client:
        for method, expected in (("Echo", b"abab"), ("EchoSync", b"ba")):
            sent = request.SerializeToString()
            of_client = await client.unary(method, sent, subtype="proto", framed=False)
            assert of_client.message is not None
            assert expected == echo_pb2.EchoReply.FromString(of_client.message).payload
            of_handle = await client.unary(method, framed(request))
            assert expected == value_of(of_handle.message).payload
        assert 4 == value_of((await client.unary("length", framed("four"))).message)


@INTERCEPTORS
async def test_streams_are_told_apart_too(interceptors: list[Any]) -> None:
    request = echo_pb2.StreamRequest(payload=b"x", messages=3)
    async with serving(interceptors) as client:
        sent = request.SerializeToString()
        call = client.start("EchoStream", sent, subtype="proto", framed=False, stream=True)
        assert [b"x"] * 3 == [echo_pb2.EchoReply.FromString(each).payload async for each in call]
        call = client.start("EchoStream", framed(request, flags=STREAM), stream=True)
        assert [b"x"] * 3 == [value_of(each).payload async for each in call]


@INTERCEPTORS
async def test_a_failure_is_told_as_the_caller_needs_it(interceptors: list[Any]) -> None:
    request = echo_pb2.EchoRequest()
    async with serving(interceptors) as client:
        of_handle = await client.unary("EchoSuspend", framed(request))
        sent = request.SerializeToString()
        of_client = await client.unary("EchoSuspend", sent, subtype="proto", framed=False)
    assert LookupError is type(failure(of_handle))
    assert grpc.StatusCode.UNKNOWN.value[0] == of_client.code
    assert "secret" not in of_client.details


@INTERCEPTORS
async def test_a_handle_cannot_call_an_rpc_that_reads_a_stream(interceptors: list[Any]) -> None:
    async with serving(interceptors) as client:
        for method in ("Collect", "Perform", "nothing"):
            refused = await client.unary(method, framed())
            assert UNIMPLEMENTED == refused.code
            assert f"Echo has no method {method!r} that can be called" in refused.details
        assert OK == (await client.unary("length", framed(""))).code


def test_the_service_is_announced_once() -> None:
    loaded = loaded_echo([])
    said = ready(mesh_pb2.Assign(), loaded, mesh_pb2.Endpoints(), NAME, takes_http=False)
    assert [NAME] == list(said.services)
