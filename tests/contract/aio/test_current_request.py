"""What user code can ask about the request that it handles, whatever its kind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from pyserve import aio
from pyserve.request import Request, current_request, get_multiplexed_model_id
from tests.support.waiting import eventually

METADATA = (("x-request-id", "r1"), ("multiplexed-model-id", "v2"))


class Child:
    """A child call that records its cancellation."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def _describe() -> bytes:
    request = current_request()
    assert request is not None
    remaining_s = request.time_remaining()
    timed = remaining_s is not None and 0 < remaining_s <= 30
    return f"{request.request_id} {get_multiplexed_model_id()} {request.method} {timed}".encode()


async def _unary(_request: bytes, _context: Any) -> bytes:
    await asyncio.sleep(0)
    return await asyncio.create_task(_nested())


async def _nested() -> bytes:
    return _describe()


def _plain(_request: bytes, _context: Any) -> bytes:
    return _describe()


async def _generator(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
    yield _describe()


def _plain_generator(_request: bytes, _context: Any) -> Iterator[bytes]:
    yield _describe()


HANDLERS: dict[str, Any] = {
    "unary": grpc.unary_unary_rpc_method_handler(_unary),
    "plain": grpc.unary_unary_rpc_method_handler(_plain),
    "generator": grpc.unary_stream_rpc_method_handler(_generator),
    "plain_generator": grpc.unary_stream_rpc_method_handler(_plain_generator),
}


class Passing(grpc.aio.ServerInterceptor):
    """An interceptor that changes nothing; calls take the other way through the server."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        return await continuation(details)


@pytest.mark.parametrize("name", list(HANDLERS))
@pytest.mark.parametrize("interceptors", [(), (Passing(),)], ids=["bare", "intercepted"])
async def test_handlers_of_every_kind_see_their_request(name: str, interceptors: Any) -> None:
    """Id, model and deadline come from the call; nested tasks and threads see them too."""
    server = aio.server(interceptors=interceptors)
    server.add_registered_method_handlers("p.S", HANDLERS)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        if "generator" in name:
            stream = channel.unary_stream(f"/p.S/{name}")(b"", metadata=METADATA, timeout=30)
            answers = [answer async for answer in stream]
        else:
            answers = [
                await channel.unary_unary(f"/p.S/{name}")(b"", metadata=METADATA, timeout=30)
            ]
    await server.stop(None)
    assert [f"r1 v2 {name} True".encode()] == answers
    assert current_request() is None


async def test_child_calls_end_with_a_cancelled_call_only() -> None:
    """A cancelled call cancels its children; a call that ends normally leaves them alone."""
    children: list[Child] = []
    seen: list[Request] = []

    async def handle(request: bytes, _context: Any) -> bytes:
        current = current_request()
        assert current is not None
        seen.append(current)
        children.append(Child())
        current.add_child(children[-1])
        if request == b"hang":
            await asyncio.Event().wait()
        return b""

    server = aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(handle)
    server.add_registered_method_handlers("p.S", {"Call": handler})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.unary_unary("/p.S/Call")(b"")
        call = channel.unary_unary("/p.S/Call")(b"hang")
        await eventually(lambda: len(children) == 2)
        call.cancel()
        await eventually(lambda: children[1].cancelled)
    await server.stop(None)
    assert [False, True] == [child.cancelled for child in children]
    assert [True, True] == [request.is_ended for request in seen]
    late = Child()
    seen[1].add_child(late)
    assert late.cancelled
