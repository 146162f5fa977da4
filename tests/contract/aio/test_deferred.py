"""Handlers that queue their calls: answered from elsewhere, as one that returns would be."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pyserve.aio._tasks import DeferredUnary
from pyserve.request import CURRENT
from tests.contract.aio.sides import PYSERVE, SERVICE, Network, Side, failure, unary, within

_PATH = f"/{SERVICE}/Call"


class Queue:
    """Takes calls, and answers none by itself."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[bytes, Any, Any]] = asyncio.Queue()
        self.sources: list[Any] = []

    def __call__(self, request: bytes, context: Any, source: Any, reply: Any) -> None:
        if request == b"refuse":
            raise ValueError("no place")
        self.sources.append(source)
        self.calls.put_nowait((request, context, reply))

    async def next(self) -> tuple[bytes, Any, Any]:
        return await within(self.calls.get())

    def methods(self) -> dict[str, Any]:
        return {"Call": unary(DeferredUnary(self))}


@pytest.fixture
async def serving(client_side: Side) -> AsyncIterator[Network]:
    """Servers of pyserve, with clients of either side."""
    network = Network(PYSERVE, client_side)
    yield network
    await network.close()


@pytest.fixture
def queue() -> Queue:
    return Queue()


async def test_results_arrive_in_whatever_order(serving: Network, queue: Queue) -> None:
    stub = await serving.serve(queue.methods())
    calls = [stub.unary()(bytes([number])) for number in range(3)]
    waiting = [await queue.next() for _ in calls]
    for request, context, reply in reversed(waiting):
        assert not reply.done()
        reply.set_result(request * 2)
        assert reply.done()
        assert context.done()
    assert [bytes([number]) * 2 for number in range(3)] == [await within(call) for call in calls]
    assert queue.sources == [context for _, context, _ in waiting]


async def test_what_the_handler_sets_goes_with_the_result(serving: Network, queue: Queue) -> None:
    stub = await serving.serve(queue.methods())
    call = stub.unary()(b"x")
    _, context, reply = await queue.next()
    context.set_trailing_metadata((("k", "v"),))
    done: list[Any] = []
    context.add_done_callback(lambda _: done.append(CURRENT.get()))
    reply.set_result(b"y")
    assert b"y" == await within(call)
    assert ("k", "v") in tuple(await within(call.trailing_metadata()))
    assert [context] == done
    assert CURRENT.get() is None


async def test_a_failure_is_that_of_a_handler(serving: Network, queue: Queue) -> None:
    stub = await serving.serve(queue.methods())
    for error, code in (
        (ValueError("broken"), grpc.StatusCode.UNKNOWN),
        (asyncio.CancelledError(), grpc.StatusCode.CANCELLED),
    ):
        call = stub.unary()(b"x")
        _, _, reply = await queue.next()
        reply.set_exception(error)
        assert not reply.cancel()
        assert code is await within(call.code())


async def test_a_wrong_response_and_a_full_queue_fail_the_call(
    serving: Network, queue: Queue
) -> None:
    stub = await serving.serve(queue.methods())
    call = stub.unary()(b"x")
    _, _, reply = await queue.next()
    reply.set_result("no bytes")
    assert grpc.StatusCode.INTERNAL is (await failure(call)).code()
    assert grpc.StatusCode.UNKNOWN is (await failure(stub.unary()(b"refuse"))).code()
    assert queue.calls.empty()


async def test_an_unreadable_request_is_the_clients_fault(serving: Network, queue: Queue) -> None:
    def refuse(_: bytes) -> None:
        raise ValueError("no message")

    handler: Any = grpc.unary_unary_rpc_method_handler(
        DeferredUnary(queue), request_deserializer=refuse
    )
    stub = await serving.serve({"Call": handler})
    assert grpc.StatusCode.INVALID_ARGUMENT is (await failure(stub.unary()(b"x"))).code()


async def test_whoever_waits_is_told_when_the_client_leaves(serving: Network, queue: Queue) -> None:
    stub = await serving.serve(queue.methods())
    for timeout_s in (None, 0.2):
        call = stub.unary()(b"x", timeout=timeout_s)
        _, context, reply = await queue.next()
        told: asyncio.Queue[Any] = asyncio.Queue()
        reply.add_done_callback(told.put_nowait)
        if timeout_s is None:
            call.cancel()
        assert reply is await within(told.get())
        assert reply.done()
        assert context.done()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await within(call)


async def test_the_end_of_the_server_ends_waiting_calls(serving: Network, queue: Queue) -> None:
    server, address = await serving.start(queue.methods())
    call = serving.channel(address).unary_unary(_PATH)(b"x")
    _, _, reply = await queue.next()
    await within(server.stop(None))
    assert reply.done()
    assert grpc.StatusCode.UNAVAILABLE is (await failure(call)).code()


async def test_interceptors_see_a_handler_as_any_other(serving: Network, queue: Queue) -> None:
    class Passing(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            return await continuation(details)

    stub = await serving.serve(queue.methods(), interceptors=[Passing()])
    call = stub.unary()(b"x")
    request, context, reply = await queue.next()
    reply.set_result(request * 2)
    assert b"xx" == await within(call)
    assert [context] == queue.sources
