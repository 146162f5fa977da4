"""Client interceptors of the four kinds."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    Network,
    Side,
    Stub,
    both,
    collect,
    echo,
    failure,
    requests,
    responses,
    unary,
    within,
)


async def _tell(_request: bytes, context: Any) -> bytes:
    return str(dict(context.invocation_metadata()).get("added")).encode()


async def _join(request_iterator: Any, _context: Any) -> bytes:
    return b"+".join([request async for request in request_iterator])


async def _split(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    for value in request:
        yield bytes([value])


async def _echo_all(request_iterator: Any, _context: Any) -> AsyncIterator[bytes]:
    async for request in request_iterator:
        yield request


METHODS = {
    "Tell": unary(_tell),
    "Echo": unary(echo),
    "In": requests(_join),
    "Out": responses(_split),
    "Both": both(_echo_all),
}


async def _stub(network: Network, *interceptors: Any) -> Stub:
    _, address = await network.start(METHODS)
    return Stub(network.channel(address, interceptors=list(interceptors)))


class AddMetadata(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds a pair to the call's metadata."""

    def __init__(self, value: str, log: list[str]) -> None:
        self._value = value
        self._log = log

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        self._log.append(self._value)
        metadata = client_call_details.metadata
        if "added" not in metadata:
            metadata.add("added", self._value)
        return await continuation(client_call_details, request)


async def test_interceptors_change_metadata_in_order(network: Network) -> None:
    log: list[str] = []
    stub = await _stub(network, AddMetadata("first", log), AddMetadata("second", log))
    call = stub.unary("Tell")(b"")
    assert b"first" == await within(call)
    assert ["first", "second"] == log
    assert grpc.StatusCode.OK is await within(call.code())
    assert call.done()
    assert isinstance(await within(call.initial_metadata()), grpc.aio.Metadata)
    assert "" == await within(call.details())


class Replace(grpc.aio.UnaryUnaryClientInterceptor):
    """Answers without the server."""

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        return b"made here"


async def test_interceptor_may_answer_itself(network: Network) -> None:
    stub = await _stub(network, Replace())
    call = stub.unary("Echo")(b"x")
    assert b"made here" == await within(call)
    assert grpc.StatusCode.OK is await within(call.code())
    assert call.done()


class Retry(grpc.aio.UnaryUnaryClientInterceptor):
    """Calls again with another request when the first fails."""

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        call = await continuation(client_call_details, request)
        if await call.code() is not grpc.StatusCode.OK:
            call = await continuation(client_call_details, b"good")
        return call


async def test_interceptor_may_call_twice(network: Network) -> None:
    async def picky(request: bytes, context: Any) -> bytes:
        if request != b"good":
            await context.abort(grpc.StatusCode.ABORTED, "bad")
        return request

    _, address = await network.start({"Call": unary(picky)})
    stub = Stub(network.channel(address, interceptors=[Retry()]))
    assert b"good" == await within(stub.unary()(b"bad"))


async def test_errors_pass_through_interceptors(network: Network) -> None:
    async def abort(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.ABORTED, "why", (("k", "v"),))

    _, address = await network.start({"Call": unary(abort)})
    stub = Stub(network.channel(address, interceptors=[AddMetadata("x", [])]))
    call = stub.unary()(b"")
    error = await failure(call)
    assert (grpc.StatusCode.ABORTED, "why") == (error.code(), error.details())
    assert grpc.StatusCode.ABORTED is await within(call.code())
    assert "v" == (await within(call.trailing_metadata()))["k"]


class Raises(grpc.aio.UnaryUnaryClientInterceptor):
    """Raises an error of its own."""

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        raise ValueError("the interceptor said no")


async def test_exceptions_of_interceptors_reach_the_caller(network: Network) -> None:
    stub = await _stub(network, Raises())
    call = stub.unary("Echo")(b"")
    with pytest.raises(ValueError, match="said no"):
        await within(call)
    assert call.done()


class Hold(grpc.aio.UnaryUnaryClientInterceptor):
    """Waits before it calls."""

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        await asyncio.Event().wait()


async def test_call_can_be_cancelled_while_an_interceptor_waits(network: Network) -> None:
    stub = await _stub(network, Hold())
    call = stub.unary("Echo")(b"")
    await asyncio.sleep(0)
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(call)
    assert call.cancelled()
    assert grpc.StatusCode.CANCELLED is await within(call.code())
    assert "Locally cancelled by application!" == await within(call.details())


class Double(grpc.aio.UnaryStreamClientInterceptor):
    """Repeats every response."""

    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        call = await continuation(client_call_details, request)

        async def repeat() -> AsyncIterator[bytes]:
            async for response in call:
                yield response
                yield response

        return repeat()


class PassStream(grpc.aio.UnaryStreamClientInterceptor):
    """Returns the call as it is."""

    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        return await continuation(client_call_details, request)


async def test_response_streams_can_be_replaced_or_passed(network: Network) -> None:
    stub = await _stub(network, Double())
    call = stub.responses("Out")(b"ab")
    assert [b"a", b"a", b"b", b"b"] == await within(collect(call))
    assert grpc.StatusCode.OK is await within(call.code())
    stub = await _stub(network, PassStream())
    call = stub.responses("Out")(b"ab")
    assert b"a" == await within(call.read())
    assert b"b" == await within(call.read())
    assert grpc.aio.EOF == await within(call.read())


class UpperRequests(grpc.aio.StreamUnaryClientInterceptor):
    """Changes every request on its way."""

    async def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        async def upper() -> AsyncIterator[bytes]:
            async for request in request_iterator:
                yield request.upper()

        return await continuation(client_call_details, upper())


async def test_request_streams_pass_through_interceptors(network: Network) -> None:
    stub = await _stub(network, UpperRequests())

    async def generate() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    assert b"A+B" == await within(stub.requests("In")(generate()))
    call = stub.requests("In")()
    await within(call.write(b"c"))
    await within(call.write(b"d"))
    await within(call.done_writing())
    assert b"C+D" == await within(call)


class PassBoth(grpc.aio.StreamStreamClientInterceptor):
    """Changes nothing, but sees the call."""

    async def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await continuation(client_call_details, request_iterator)


async def test_both_streams_pass_through_interceptors(network: Network) -> None:
    stub = await _stub(network, PassBoth())
    assert [b"a", b"b"] == await within(collect(stub.both("Both")(_generate(b"a", b"b"))))
    call = stub.both("Both")()
    await within(call.write(b"x"))
    assert b"x" == await within(call.read())
    await within(call.done_writing())
    assert grpc.aio.EOF == await within(call.read())
    assert grpc.StatusCode.OK is await within(call.code())


async def test_interceptors_of_other_kinds_do_not_interfere(network: Network) -> None:
    stub = await _stub(network, Double(), UpperRequests(), PassBoth())
    assert b"x" == await within(stub.unary("Echo")(b"x"))


async def test_objects_of_other_types_are_refused_as_interceptors(network: Network) -> None:
    with pytest.raises(ValueError, match="Interceptor"):
        network.client_side.insecure_channel("localhost:1", interceptors=[object()])


async def _generate(*items: bytes) -> AsyncIterator[bytes]:
    for item in items:
        yield item


class Unwrap(grpc.aio.StreamUnaryClientInterceptor):
    """Awaits the call and returns its response."""

    async def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        call = await continuation(client_call_details, request_iterator)
        return await call


async def test_interceptor_of_streamed_requests_may_return_the_response(server_side: Side) -> None:
    """As it is documented; a call of grpcio has no `__await__` then."""
    network = Network(server_side, PYSERVE)
    stub = await _stub(network, Unwrap())
    call = stub.requests("In")(iter([b"1", b"2"]))
    assert b"1+2" == await within(call)
    assert grpc.StatusCode.OK is await within(call.code())
    await network.close()
