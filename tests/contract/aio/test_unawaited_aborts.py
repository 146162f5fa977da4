"""An abort that is called without ``await``: the client has its status, never a success."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    Network,
    Stub,
    failure,
    responses,
    unary,
    within,
)


class OnTheLoop(grpc.aio.ServerInterceptor):
    """Runs each method on the loop, with the context of ``async def``."""

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = await continuation(details)
        if handler.unary_unary is not None:

            async def run(request: Any, context: Any) -> Any:
                found = handler.unary_unary(request, context)
                return await found if inspect.isawaitable(found) else found

            return grpc.unary_unary_rpc_method_handler(run)

        async def run_stream(request: Any, context: Any) -> AsyncIterator[Any]:
            for each in handler.unary_stream(request, context):
                yield each

        return grpc.unary_stream_rpc_method_handler(run_stream)


class _Status(grpc.Status):
    code = grpc.StatusCode.ABORTED
    details = "why"
    trailing_metadata = ()


async def check_aborted(call: Any, messages: int = 0) -> None:
    """Expect the status of the aborts here, after some messages."""
    for _ in range(messages):
        await within(call.read())
    error = await failure(call if messages == 0 else call.read())
    assert (grpc.StatusCode.ABORTED, "why") == (error.code(), error.details())


async def check_log(stub: Stub, method: str, caplog: pytest.LogCaptureFixture) -> None:
    """Expect one line that names the place, and no warning that a coroutine was not awaited."""
    await check_aborted(stub.unary(method)(b""))
    (line,) = caplog.messages
    assert f"/{method} called context.abort() without `await` in {__file__}:" in line


@pytest.mark.parametrize("method", ["Code", "Status"])
async def test_the_call_ends_at_the_call_of_abort(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.ABORTED, "why")
        return request

    async def forget_status(request: bytes, context: Any) -> bytes:
        context.abort_with_status(_Status())
        return request

    network = Network(PYSERVE, PYSERVE)
    stub = await network.serve({"Code": unary(forget), "Status": unary(forget_status)})
    await check_log(stub, method, caplog)
    await network.close()


async def test_a_stream_stops_at_its_next_message(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    async def forget(request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield request
            context.abort(grpc.StatusCode.ABORTED, "why")
            yield request
            steps.append("went on")
        finally:
            steps.append("closed")

    async def write(request: bytes, context: Any) -> None:
        context.abort(grpc.StatusCode.ABORTED, "why")
        await context.write(request)
        steps.append("went on")

    network = Network(PYSERVE, PYSERVE)
    stub = await network.serve({"Yield": responses(forget), "Write": responses(write)})
    await check_aborted(stub.responses("Yield")(b"x"), messages=1)
    await check_aborted(stub.responses("Write")(b"x").read())
    assert ["closed"] == steps
    assert 2 == len([line for line in caplog.messages if "without `await`" in line])
    await network.close()


async def test_a_plain_method_on_the_loop_gets_the_error_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps: list[str] = []

    def refuse(request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.ABORTED, "why")
        steps.append("went on")
        return request

    def refuse_late(request: bytes, context: Any) -> Iterator[bytes]:
        yield request
        context.abort_with_status(_Status())
        steps.append("went on")

    network = Network(PYSERVE, PYSERVE)
    stub = await network.serve(
        {"Call": unary(refuse), "Stream": responses(refuse_late)}, interceptors=(OnTheLoop(),)
    )
    await check_aborted(stub.unary()(b""))
    await check_aborted(stub.responses("Stream")(b""), messages=1)
    assert ([], []) == (steps, caplog.messages)
    await network.close()


async def test_what_abort_returns_may_be_awaited_elsewhere(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(context: Any) -> Any:
        return context.abort(grpc.StatusCode.ABORTED, "why")

    async def by_a_helper(_request: bytes, context: Any) -> None:
        await refuse(context)

    async def by_a_task(_request: bytes, context: Any) -> None:
        await asyncio.create_task(context.abort(grpc.StatusCode.ABORTED, "why"))

    async def in_time(_request: bytes, context: Any) -> None:
        await asyncio.wait_for(context.abort(grpc.StatusCode.ABORTED, "why"), 5)

    async def later(_request: bytes, context: Any) -> None:
        abort = context.abort(grpc.StatusCode.ABORTED, "why")
        assert asyncio.iscoroutine(abort)
        await abort

    handlers = {"A": by_a_helper, "B": by_a_task, "C": in_time, "D": later}
    stub = await network.serve({name: unary(handler) for name, handler in handlers.items()})
    for name in handlers:
        await check_aborted(stub.unary(name)(b""))
    assert not [line for line in caplog.messages if "await" in line]
