"""How methods of each shape become handlers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.errors import Abort
from pyserve.replica.checks import check_class
from pyserve.replica.handlers import register, weights
from pyserve.replica.servicers import find_services
from services.echo import echo_pb2, echo_pb2_grpc


class Service(echo_pb2_grpc.EchoServicer):
    closed = False

    async def Echo(self, request: Any, context: Any) -> Any:
        return request

    async def EchoSuspend(self, request: Any) -> Any:
        return ("no context", request)

    def EchoSync(self, request: Any) -> Any:
        return ("plain", request)

    async def EchoStream(self, request: Any) -> AsyncIterator[Any]:
        try:
            for number in range(3):
                yield (number, request)
        finally:
            self.closed = True

    @pyserve.batch(max_batch_size=2)
    async def Perform(self, requests: list[Any]) -> list[Any]:
        return [(len(requests), request) for request in requests]

    @pyserve.method(timeout_s=0.01)
    async def Count(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(request)
        return "slept"

    @pyserve.method(timeout_s=0.05, weight=0)
    async def PerformStream(self, request: Any) -> AsyncIterator[Any]:
        for pause_s in request:
            yield pause_s
            await asyncio.sleep(pause_s)


class Context:
    """The two methods of a servicer's context that are called here."""

    def __init__(self, time_remaining_s: float | None = None) -> None:
        self._time_remaining_s = time_remaining_s

    def time_remaining(self) -> float | None:
        return self._time_remaining_s

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Abort(code, details)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def handlers(service: Service) -> dict[str, Any]:
    services = find_services(Service)
    methods, _ = check_class(Service, services)
    added: dict[str, Any] = {}
    register(service, services, methods, lambda _name, found: added.update(found))
    return added


def test_a_method_of_full_signature_is_registered_as_it_is(
    handlers: dict[str, Any], service: Service
) -> None:
    assert service.Echo == handlers["Echo"].unary_unary


def test_handlers_keep_their_kind_and_serializers(handlers: dict[str, Any]) -> None:
    handler = handlers["Converse"]
    assert (True, True) == (handler.request_streaming, handler.response_streaming)
    assert b"" == handler.response_serializer(echo_pb2.PerformReply())


async def test_a_method_without_context_gets_the_request_only(handlers: dict[str, Any]) -> None:
    assert ("no context", 1) == await handlers["EchoSuspend"].unary_unary(1, Context())
    assert ("plain", 1) == handlers["EchoSync"].unary_unary(1, Context())


async def test_a_generator_without_context_is_closed_with_its_call(
    handlers: dict[str, Any], service: Service
) -> None:
    stream = handlers["EchoStream"].unary_stream(1, Context())
    assert (0, 1) == await anext(stream)
    await stream.aclose()
    assert service.closed


async def test_a_batched_method_gets_the_requests_of_concurrent_calls(
    handlers: dict[str, Any],
) -> None:
    handle = handlers["Perform"].unary_unary
    assert [(2, "a"), (2, "b")] == await asyncio.gather(
        handle("a", Context()), handle("b", Context())
    )


async def test_a_method_left_out_is_refused_as_unimplemented(handlers: dict[str, Any]) -> None:
    with pytest.raises(Abort) as raised:
        await handlers["Fork"].unary_unary(None, Context())
    assert grpc.StatusCode.UNIMPLEMENTED is raised.value.code


async def test_a_methods_timeout_ends_calls_without_a_deadline_only(
    handlers: dict[str, Any],
) -> None:
    handle = handlers["Count"].unary_unary
    with pytest.raises(Abort, match=r"longer than 0\.01 s") as raised:
        await handle(30, Context())
    assert grpc.StatusCode.DEADLINE_EXCEEDED is raised.value.code
    assert "slept" == await handle(0.02, Context(time_remaining_s=30))


async def test_a_streams_timeout_counts_the_whole_call(handlers: dict[str, Any]) -> None:
    handle = handlers["PerformStream"].unary_stream
    with pytest.raises(Abort, match=r"longer than 0\.05 s"):
        assert [0, 30] == [pause_s async for pause_s in handle([0, 30], Context())]
    unlimited = handle([0.06, 0], Context(time_remaining_s=30))
    assert [0.06, 0] == [pause_s async for pause_s in unlimited]


def test_only_weights_other_than_one_are_told() -> None:
    methods, _ = check_class(Service, find_services(Service))
    assert {"/services.echo.Echo/PerformStream": 0} == weights(methods)


class Batching(echo_pb2_grpc.EchoServicer):
    @pyserve.batch(max_batch_size=2)
    async def Echo(self, requests: list[Any], contexts: list[Any]) -> list[Any]:
        return list(zip(requests, contexts, strict=True))

    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def EchoStream(self, requests: list[Any]) -> Any:
        for number in range(2):
            yield [(number, request) for request in requests]


async def test_a_batched_method_may_take_the_contexts_and_answer_with_streams() -> None:
    services = find_services(Batching)
    methods, _ = check_class(Batching, services)
    added: dict[str, Any] = {}
    register(Batching(), services, methods, lambda _name, found: added.update(found))
    contexts = [Context(), Context()]
    assert [("a", contexts[0]), ("b", contexts[1])] == await asyncio.gather(
        *(added["Echo"].unary_unary(name, each) for name, each in zip("ab", contexts, strict=True))
    )
    stream = added["EchoStream"].unary_stream("c", Context())
    assert [(0, "c"), (1, "c")] == [message async for message in stream]
