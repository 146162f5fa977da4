"""The replica's server with a constructed class, called by grpcio's client."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.config import DeploymentOptions
from pyserve.config.ingress import IngressSettings
from pyserve.replica.checks import check_class
from pyserve.replica.loading import Loaded
from pyserve.replica.servicers import find_services
from pyserve.replica.serving import make_server
from services.echo import echo_pb2, echo_pb2_grpc


class Service(echo_pb2_grpc.EchoServicer):
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.5)
    async def Echo(self, requests: list[Any]) -> list[Any]:
        return [
            pyserve.Abort(grpc.StatusCode.DATA_LOSS, "this one", [("why", "told")])
            if request.payload == b"bad"
            else echo_pb2.EchoReply(payload=request.payload + b"%d" % len(requests))
            for request in requests
        ]

    async def EchoSuspend(self, request: Any, context: Any) -> Any:
        raise pyserve.Abort(grpc.StatusCode.ABORTED, "raised", [("key-bin", b"\x00")])

    def EchoSync(self, request: Any) -> Any:
        raise pyserve.Abort(grpc.StatusCode.OUT_OF_RANGE, "in a thread")

    async def EchoStream(self, request: Any) -> AsyncIterator[Any]:
        yield echo_pb2.EchoReply(payload=b"first")
        raise pyserve.Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "after one")

    async def Perform(self, request: Any, context: Any) -> Any:
        raise pickle.PicklingError("a secret")

    async def PerformSync(self, request: Any, context: Any) -> Any:
        return "no message"


class Stamp(grpc.aio.ServerInterceptor):
    """Refuses calls without a stamp."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: Any
    ) -> Any:
        if ("stamp", "yes") in [tuple(pair) for pair in details.invocation_metadata]:
            return await continuation(details)

        async def refuse(_request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no stamp")

        return grpc.unary_unary_rpc_method_handler(refuse)


@asynccontextmanager
async def serving(
    *, development: bool = False, interceptors: list[Any] | None = None
) -> AsyncIterator[Any]:
    services = find_services(Service)
    methods, _ = check_class(Service, services)
    options = DeploymentOptions()
    loaded = Loaded(Service, options, services, methods, (), {}, interceptors or [])
    server = make_server(
        loaded,
        Service(),
        application="default",
        deployment="Service",
        replica_id="Echo#1",
        token=b"",  # Nobody has to prove it.
        development=development,
        limits=IngressSettings(),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield echo_pb2_grpc.EchoStub(channel)
    finally:
        await server.stop(0)


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


async def test_one_item_of_a_batch_may_fail_alone() -> None:
    async with serving() as stub:
        good, bad = await asyncio.gather(
            stub.Echo(echo_pb2.EchoRequest(payload=b"good")),
            failure(stub.Echo(echo_pb2.EchoRequest(payload=b"bad"))),
        )
    assert b"good2" == good.payload
    assert (grpc.StatusCode.DATA_LOSS, "this one") == (bad.code(), bad.details())
    assert ("why", "told") in list(bad.trailing_metadata())


async def test_an_abort_raised_anywhere_becomes_its_status() -> None:
    async with serving() as stub:
        raised = await failure(stub.EchoSuspend(echo_pb2.EchoRequest()))
        threaded = await failure(stub.EchoSync(echo_pb2.EchoRequest()))
        stream = stub.EchoStream(echo_pb2.StreamRequest())
        assert b"first" == (await stream.read()).payload
        streamed = await failure(stream.read())
    assert (grpc.StatusCode.ABORTED, "raised") == (raised.code(), raised.details())
    assert ("key-bin", b"\x00") in list(raised.trailing_metadata())
    assert (grpc.StatusCode.OUT_OF_RANGE, "in a thread") == (threaded.code(), threaded.details())
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "after one") == (
        streamed.code(),
        streamed.details(),
    )


@pytest.mark.parametrize("development", [False, True])
async def test_the_text_of_an_exception_leaves_the_replica_in_development_only(
    development: bool,
) -> None:
    async with serving(development=development) as stub:
        error = await failure(stub.Perform(echo_pb2.PerformRequest()))
    assert grpc.StatusCode.UNKNOWN is error.code()
    assert development == ("a secret" in str(error.details()))


async def test_a_wrong_type_is_internal_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as stub:
        error = await failure(stub.PerformSync(echo_pb2.PerformRequest()))
    assert grpc.StatusCode.INTERNAL is error.code()
    assert "expected services.echo.echo_pb2.PerformReply" in caplog.text


async def test_what_is_left_out_is_unimplemented_without_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as stub:
        error = await failure(stub.Count(echo_pb2.CountRequest()))
    assert grpc.StatusCode.UNIMPLEMENTED is error.code()
    assert "" == caplog.text


async def test_the_deployments_interceptors_are_asked() -> None:
    async with serving(interceptors=[Stamp()]) as stub:
        request = echo_pb2.EchoRequest(payload=b"x")
        error = await failure(stub.Echo(request))
        reply = await stub.Echo(request, metadata=[("stamp", "yes")])
    assert grpc.StatusCode.PERMISSION_DENIED is error.code()
    assert b"x1" == reply.payload


async def test_what_is_no_interceptor_is_refused() -> None:
    with pytest.raises(ValueError, match="Interceptor must be ServerInterceptor"):
        async with serving(interceptors=[len]):
            pass
