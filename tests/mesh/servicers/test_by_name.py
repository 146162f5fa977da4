"""gRPC calls of plain classes, found by ``grpc_servicer_functions``, as with Ray Serve."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

import grpc.aio
import pytest

import pyserve as serve
from pyserve.driver.local import end_local
from pyserve.errors import OptionError
from pyserve.wire.rayserve import api_pb2, api_pb2_grpc
from services.echo import echo_pb2, echo_pb2_grpc
from tests.contract.interop import interop_pb2, interop_pb2_grpc
from tests.mesh.servicers.plain_apps import app, decorated, mistaken, narrow, other

pytestmark = pytest.mark.slow

TIMEOUT_S = 20
# With dots all the way, as Ray Serve has it.
FUNCTIONS = [
    "services.echo.echo_pb2_grpc.add_EchoServicer_to_server",
    "tests.contract.interop.interop_pb2_grpc.add_TestServiceServicer_to_server",
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """One application, at the port of gRPC."""
    serve.start(
        http_options={"port": 0},
        grpc_options=serve.gRPCOptions(port=0, grpc_servicer_functions=FUNCTIONS),
    )
    try:
        serve.run(app, name="plain", route_prefix=None)
        yield serve.status().addresses[1]
    finally:
        serve.shutdown()


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Any:
    return echo_pb2_grpc.EchoStub(channel)


@pytest.mark.parity("G-41")
async def test_a_unary_call_reaches_the_ingress_deployment(stub: Any):
    request = echo_pb2.EchoRequest(payload=b"abc")

    # A parameter with a default keeps it.
    assert b"cba 0.5" == (await stub.Echo(request, timeout=TIMEOUT_S)).payload
    assert b"abc" == (await stub.EchoSync(request, timeout=TIMEOUT_S)).payload


@pytest.mark.parity("G-43")
async def test_the_parameter_grpc_context_is_filled(stub: Any):
    metadata = (("sent", "this"), ("multiplexed_model_id", "m1"))
    call = stub.EchoSuspend(echo_pb2.EchoRequest(), metadata=metadata, timeout=TIMEOUT_S)

    assert b"m1" == (await call).payload
    assert "this" == (await call.trailing_metadata())["seen"]


@pytest.mark.parity("G-43")
async def test_the_code_of_the_user_is_kept_when_the_method_raises(stub: Any):
    request = echo_pb2.EchoRequest(payload=b"missing")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.EchoSuspend(request, metadata=(("sent", "it"),), timeout=TIMEOUT_S)

    assert grpc.StatusCode.NOT_FOUND is caught.value.code()
    assert "no such thing" == caught.value.details()
    assert "it" == caught.value.trailing_metadata()["seen"]


@pytest.mark.parity("G-42")
@pytest.mark.parametrize("kind", [b"sync", b"async"])
async def test_a_def_may_return_a_generator_of_either_kind(stub: Any, kind: bytes):
    call = stub.EchoStream(echo_pb2.StreamRequest(payload=kind, messages=3), timeout=TIMEOUT_S)

    assert [kind + b" 0", kind + b" 1", kind + b" 2"] == [each.payload async for each in call]


@pytest.mark.parity("G-42")
async def test_a_coroutine_may_return_one_and_a_def_may_yield(stub: Any):
    request = echo_pb2.PerformStreamRequest(messages=2)

    returned = stub.PerformStream(request, timeout=TIMEOUT_S)
    assert [b"0", b"1"] == [each.payload async for each in returned]
    yielded = stub.PerformStreamSync(request, timeout=TIMEOUT_S)
    assert [b"0", b"1"] == [each.payload async for each in yielded]
    assert "2" == (await yielded.trailing_metadata())["messages"]


@pytest.mark.parity("G-42")
async def test_streams_of_requests_are_iterated_over(stub: Any):
    requests = [echo_pb2.PerformRequest(payload=each) for each in (b"ab", b"cde")]

    reply = await stub.Collect(iter(requests), timeout=TIMEOUT_S)
    assert (2, 5) == (reply.messages, reply.payload_bytes)
    call = stub.Converse(iter(requests), timeout=TIMEOUT_S)
    assert [b"ba", b"edc"] == [each.payload async for each in call]


async def test_what_the_class_does_not_have_is_unimplemented(stub: Any):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Perform(echo_pb2.PerformRequest(), timeout=TIMEOUT_S)
    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()


@pytest.mark.parity("G-41")
async def test_what_cannot_be_called_as_its_rpc_is_internal_and_says_why(stub: Any):
    # Count takes no request: it is a method for handles.
    told = await _internal(stub.Count(echo_pb2.CountRequest(), timeout=TIMEOUT_S))
    assert "takes 1 positional argument but 2 were given" in told
    assert 7 == await serve.get_app_handle("plain").Count.remote()


@pytest.mark.parity("G-43")
async def test_a_class_without_a_method_that_fits_says_why_of_each(stub: Any):
    requests = [echo_pb2.PerformRequest()]
    cases: list[tuple[Any, Any, str]] = [
        (stub.Echo, echo_pb2.EchoRequest(), "required positional argument: 'context_by_an"),
        (stub.EchoSuspend, echo_pb2.EchoRequest(), "required positional argument: 'extra'"),
        (stub.EchoSync, echo_pb2.EchoRequest(), "yields, but its RPC answers with one message"),
        (stub.Perform, echo_pb2.PerformRequest(), "takes requests, extra besides self"),
        (stub.Collect, iter(requests), "takes 0 positional arguments but 1 was given"),
        (stub.EchoStream, echo_pb2.StreamRequest(), "keyword-only arguments: 'first' and 'second'"),
        (stub.PerformStreamSync, echo_pb2.PerformStreamRequest(), "multiple values for argument"),
        (stub.Converse, iter(requests), "missing 1 required positional argument: 'extra'"),
    ]
    serve.run(mistaken, name="mistaken", route_prefix=None)
    try:
        for method, request, text in cases:
            call = method(request, metadata=(("application", "mistaken"),), timeout=TIMEOUT_S)
            assert text in await _internal(call)
    finally:
        serve.delete("mistaken")


@pytest.mark.parity("G-41")
@pytest.mark.parametrize("size", [5 << 20, 40 << 20])
async def test_requests_may_be_large_unless_the_deployment_says_otherwise(address: str, size: int):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options) as channel:
        stub: Any = echo_pb2_grpc.EchoStub(channel)
        request = echo_pb2.EchoRequest(payload=bytes(size))
        assert size == len((await stub.EchoSync(request, timeout=TIMEOUT_S)).payload)

        serve.run(narrow, name="narrow", route_prefix=None)
        try:
            metadata = (("application", "narrow"),)
            with pytest.raises(grpc.aio.AioRpcError, match="max_receive_message_bytes") as caught:
                await stub.EchoSync(request, metadata=metadata, timeout=TIMEOUT_S)
            assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
        finally:
            serve.delete("narrow")


async def test_a_decorator_may_pass_what_a_method_needs_besides_the_request(stub: Any):
    serve.run(decorated, name="decorated", route_prefix=None)
    try:
        metadata = (("application", "decorated"),)
        request = echo_pb2.EchoRequest(payload=b"a")
        reply = await stub.Echo(request, metadata=metadata, timeout=TIMEOUT_S)
        assert b"amore" == reply.payload
    finally:
        serve.delete("decorated")


async def _internal(call: Any) -> str:
    """Return the details of a call that ends INTERNAL."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (anext(aiter(call)) if isinstance(call, AsyncIterable) else call)
    assert grpc.StatusCode.INTERNAL is caught.value.code()
    return str(caught.value.details())


@pytest.mark.parity("G-41")
async def test_metadata_picks_among_applications_once_there_are_two(
    stub: Any, channel: grpc.aio.Channel
):
    request = echo_pb2.EchoRequest(payload=b"abc")
    serve.run(other, name="other", route_prefix=None)
    try:
        for name, payload in (("plain", b"cba 0.5"), ("other", b"other")):
            metadata = (("application", name),)
            assert (
                payload == (await stub.Echo(request, metadata=metadata, timeout=TIMEOUT_S)).payload
            )
        with pytest.raises(grpc.aio.AioRpcError, match="other and plain"):
            await stub.Echo(request, timeout=TIMEOUT_S)
        # One application alone has that service.
        interop = interop_pb2_grpc.TestServiceStub(channel)
        assert interop_pb2.Empty() == await interop.EmptyCall(
            interop_pb2.Empty(), timeout=TIMEOUT_S
        )
        api = api_pb2_grpc.RayServeAPIServiceStub(channel)
        listed = await api.ListApplications(api_pb2.ListApplicationsRequest(), timeout=TIMEOUT_S)
        assert ["other", "plain"] == list(listed.application_names)
        healthy = await api.Healthz(api_pb2.HealthzRequest(), timeout=TIMEOUT_S)
        assert "success" == healthy.message
    finally:
        serve.delete("other")


def test_a_list_that_cannot_be_read_is_refused_before_a_mesh_starts():
    with pytest.raises(OptionError, match="grpc_servicer_functions='no path' is not allowed"):
        serve.gRPCOptions(grpc_servicer_functions=["no path"])


@pytest.mark.parametrize(
    "path", ["services.nowhere:add_EchoServicer_to_server", "services.echo:no"]
)
def test_a_function_that_is_none_is_told_where_it_is_written(path: str) -> None:
    with pytest.raises(OptionError, match=f"has '{path}', which cannot be imported"):
        serve.start(grpc_options={"port": 0, "grpc_servicer_functions": [path]})


@pytest.mark.parametrize(
    "path", ["services.nowhere:add_EchoServicer_to_server", "services.echo.echo_pb2_grpc:EchoStub"]
)
def test_an_application_that_cannot_import_it_serves_all_the_same(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYSERVE_GRPC_SERVICER_FUNCTIONS", path)

    handle = serve.run(other, name="wrong", local_testing_mode=True)

    request = interop_pb2.Empty()
    assert request == handle.EmptyCall.remote(request).result(timeout_s=TIMEOUT_S)
    assert f"grpc_servicer_functions has {path}, which cannot be used here" in caplog.text
    end_local()
