"""Done callbacks that raise: the loop's exception handler is told, and the call is unharmed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    Network,
    Side,
    both,
    collect,
    echo,
    failure,
    requests,
    responses,
    unary,
    within,
)

ToldErrors = asyncio.Queue[BaseException | None]


@pytest.fixture
async def told() -> AsyncIterator[ToldErrors]:
    """The exceptions that the loop's exception handler gets."""
    loop = asyncio.get_running_loop()
    errors: ToldErrors = asyncio.Queue()
    loop.set_exception_handler(lambda _, context: errors.put_nowait(context.get("exception")))
    yield errors
    loop.set_exception_handler(None)


def _raising(text: str, kind: type[BaseException] = ValueError) -> Callable[[Any], None]:
    def callback(_: Any) -> None:
        raise kind(text)

    return callback


async def _copies(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    yield request
    yield request


async def _last(incoming: AsyncIterator[bytes], _context: Any) -> bytes:
    last: bytes = (await collect(incoming))[-1]
    return last


async def _same(incoming: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for request in incoming:
        yield request


async def _abort(_request: bytes, context: Any) -> None:
    await context.abort(grpc.StatusCode.ABORTED, "why")


async def _wait(_request: bytes, _context: Any) -> None:
    await asyncio.Event().wait()


_METHODS = {
    "Echo": unary(echo),
    "Copies": responses(_copies),
    "Last": requests(_last),
    "Same": both(_same),
    "Abort": unary(_abort),
    "Wait": unary(_wait),
}


async def test_a_stream_tells_the_loop(network: Network, told: ToldErrors) -> None:
    stub = await network.serve(_METHODS)
    for make, expected in (
        (lambda: stub.responses("Copies")(b"x"), [b"x", b"x"]),
        (lambda: stub.both("Same")(iter([b"x"])), [b"x"]),
    ):
        call = make()
        call.add_done_callback(_raising("of a stream"))
        assert expected == await within(collect(call))
        assert "of a stream" == str(await within(told.get()))
        assert grpc.StatusCode.OK is await within(call.code())


async def test_a_callback_that_comes_late_raises_at_once(network: Network) -> None:
    stub = await network.serve(_METHODS)
    call = stub.unary("Echo")(b"x")
    assert b"x" == await within(call)
    with pytest.raises(ValueError, match="too late"):
        call.add_done_callback(_raising("too late"))


@pytest.fixture
async def calling(server_side: Side) -> AsyncIterator[Network]:
    """Channels of pyserve, to servers of either side."""
    network = Network(server_side, PYSERVE)
    yield network
    await network.close()


async def test_a_unary_call_tells_the_loop_and_runs_the_others(
    calling: Network, told: ToldErrors
) -> None:
    """In grpc.aio the response is lost: awaiting the call raises what the callback raised."""
    stub = await calling.serve(_METHODS)
    for make, code in (
        (lambda: stub.unary("Echo")(b"x"), grpc.StatusCode.OK),
        (lambda: stub.requests("Last")(iter([b"x"])), grpc.StatusCode.OK),
        (lambda: stub.unary("Abort")(b""), grpc.StatusCode.ABORTED),
        (lambda: stub.unary("Wait")(b"", timeout=0.01), grpc.StatusCode.DEADLINE_EXCEEDED),
    ):
        call = make()
        ran: list[Any] = []
        call.add_done_callback(_raising("first"))
        call.add_done_callback(_raising("second", asyncio.CancelledError))
        call.add_done_callback(ran.append)
        if code is grpc.StatusCode.OK:
            assert b"x" == await within(call)
        else:
            assert code is (await failure(call)).code()
        assert [call] == ran
        assert ["first", "second"] == [str(told.get_nowait()) for _ in range(2)]
        assert told.empty()


async def test_cancelling_a_call_tells_the_loop(calling: Network, told: ToldErrors) -> None:
    """In grpc.aio ``cancel()`` raises, and the call never ends."""
    stub = await calling.serve(_METHODS)
    call = stub.unary("Wait")(b"")
    call.add_done_callback(_raising("of a cancelled call"))
    assert call.cancel()
    assert "of a cancelled call" == str(told.get_nowait())
    with pytest.raises(asyncio.CancelledError):
        await within(call)


class _Passing(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(details, request)


async def test_calls_with_interceptors_tell_the_loop(calling: Network, told: ToldErrors) -> None:
    _, address = await calling.start(_METHODS)
    channel = calling.channel(address, interceptors=[_Passing()])
    call = channel.unary_unary("/contract.Service/Echo")(b"x")
    ran: list[Any] = []
    call.add_done_callback(_raising("below an interceptor"))
    call.add_done_callback(ran.append)
    assert b"x" == await within(call)
    assert "below an interceptor" == str(await within(told.get()))
    assert [call] == ran


def _handlers(done: "asyncio.Queue[Any]") -> dict[str, Any]:
    def ask(context: Any) -> None:
        context.add_done_callback(_raising("first"))
        context.add_done_callback(_raising("second"))
        context.add_done_callback(done.put_nowait)

    async def succeed(request: bytes, context: Any) -> bytes:
        ask(context)
        return request

    def succeed_plainly(request: bytes, context: Any) -> bytes:
        ask(context)
        return request

    async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        ask(context)
        yield request

    def stream_plainly(request: bytes, context: Any) -> Iterator[bytes]:
        ask(context)
        yield request

    async def abort(_request: bytes, context: Any) -> None:
        ask(context)
        await context.abort(grpc.StatusCode.ABORTED, "why")

    return {
        "Succeed": unary(succeed),
        "SucceedPlainly": unary(succeed_plainly),
        "Stream": responses(stream),
        "StreamPlainly": responses(stream_plainly),
        "Abort": unary(abort),
    }


@pytest.fixture
async def serving(client_side: Side) -> AsyncIterator[Network]:
    """Servers of pyserve, with clients of either side."""
    network = Network(PYSERVE, client_side)
    yield network
    await network.close()


async def test_a_server_tells_the_loop_and_runs_the_others(
    serving: Network, told: ToldErrors
) -> None:
    """A server of grpc.aio logs the error, and skips the other callbacks."""
    done: asyncio.Queue[Any] = asyncio.Queue()
    stub = await serving.serve(_handlers(done))
    for name in ("Succeed", "SucceedPlainly"):
        assert b"x" == await within(stub.unary(name)(b"x"))
        await _told_both(done, told)
    for name in ("Stream", "StreamPlainly"):
        assert [b"x"] == await within(collect(stub.responses(name)(b"x")))
        await _told_both(done, told)
    assert grpc.StatusCode.ABORTED is (await failure(stub.unary("Abort")(b""))).code()
    await _told_both(done, told)


async def _told_both(done: "asyncio.Queue[Any]", told: ToldErrors) -> None:
    context = await within(done.get())
    assert context.done()
    assert ["first", "second"] == [str(told.get_nowait()) for _ in range(2)]


async def test_where_the_loop_has_no_handler_the_log_is_told(
    serving: Network, caplog: pytest.LogCaptureFixture
) -> None:
    done: asyncio.Queue[Any] = asyncio.Queue()
    stub = await serving.serve(_handlers(done))
    assert b"x" == await within(stub.unary("Succeed")(b"x"))
    await within(done.get())
    (first,) = [record for record in caplog.records if "done callback" in record.message]
    assert "a done callback of /contract.Service/Succeed failed" == first.message
    assert first.exc_info is not None
    assert "first" == str(first.exc_info[1])
