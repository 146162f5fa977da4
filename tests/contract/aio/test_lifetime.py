"""Cancellation, deadlines and done callbacks on both sides."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    Network,
    both,
    collect,
    echo,
    failure,
    requests,
    responses,
    unary,
    within,
)


class Waiting:
    """A handler that waits, and what became of it."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def unary(self, _request: Any, _context: Any) -> bytes:
        await self._wait()
        return b""

    async def stream(self, _request: Any, _context: Any) -> AsyncIterator[bytes]:
        yield b"first"
        await self._wait()

    async def _wait(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def test_cancelling_a_unary_call_cancels_its_handler(network: Network) -> None:
    waiting = Waiting()
    stub = await network.serve({"Call": unary(waiting.unary), "Echo": unary(echo)})
    call = stub.unary()(b"")
    await within(waiting.started.wait())
    assert call.cancel()
    await within(waiting.cancelled.wait())
    assert call.cancelled()
    assert call.done()
    assert not call.cancel()
    assert grpc.StatusCode.CANCELLED is await within(call.code())
    assert "Locally cancelled by application!" == await within(call.details())
    with pytest.raises(asyncio.CancelledError):
        await call
    assert b"x" == await within(stub.unary("Echo")(b"x"))


async def test_cancelling_the_awaiting_task_cancels_the_call(network: Network) -> None:
    waiting = Waiting()
    stub = await network.serve({"Call": unary(waiting.unary)})
    call = stub.unary()(b"")

    async def wait() -> None:
        await call

    task = asyncio.ensure_future(wait())
    await within(waiting.started.wait())
    task.cancel()
    await within(waiting.cancelled.wait())
    assert call.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("kind", ["responses", "both"])
async def test_cancelling_a_stream_cancels_its_handler(network: Network, kind: str) -> None:
    waiting = Waiting()
    stub = await network.serve(
        {"responses": responses(waiting.stream), "both": both(waiting.stream)}
    )
    call = stub.responses(kind)(b"") if kind == "responses" else stub.both(kind)()
    assert b"first" == await within(call.read())
    await within(waiting.started.wait())
    call.cancel()
    await within(waiting.cancelled.wait())
    assert call.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await call.read()


async def test_cancelling_while_requests_are_written(network: Network) -> None:
    waiting = Waiting()
    stub = await network.serve({"Call": requests(waiting.unary)})
    call = stub.requests()()
    await within(call.write(b"a"))
    await within(waiting.started.wait())
    call.cancel()
    await within(waiting.cancelled.wait())
    with pytest.raises(asyncio.InvalidStateError):
        await within(call.write(b"b"))


async def test_closing_the_channel_cancels_calls(network: Network) -> None:
    waiting = Waiting()
    stub = await network.serve({"Call": unary(waiting.unary)})
    call = stub.unary()(b"")
    await within(waiting.started.wait())
    await within(stub.channel.close())
    await within(waiting.cancelled.wait())
    assert call.cancelled()
    with pytest.raises(grpc.aio.UsageError):
        await within(stub.unary()(b""))


async def test_deadline_ends_the_call_and_cancels_the_handler(network: Network) -> None:
    waiting = Waiting()
    stub = await network.serve({"Call": unary(waiting.unary), "Stream": responses(waiting.stream)})
    error = await failure(stub.unary()(b"", timeout=1.0))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is error.code()
    await within(waiting.cancelled.wait())
    waiting.cancelled.clear()
    error = await failure(stub.responses("Stream")(b"", timeout=1.0))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is error.code()
    await within(waiting.cancelled.wait())


async def test_deadline_that_has_passed_fails_at_once(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)})
    error = await failure(stub.unary()(b"", timeout=-1))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is error.code()


async def test_deadline_of_a_sync_handler_does_not_wait_for_it(network: Network) -> None:
    leave = threading.Event()

    def block(request: bytes, _context: Any) -> bytes:
        leave.wait(30)
        return request

    stub = await network.serve({"Call": unary(block)})
    try:
        error = await failure(stub.unary()(b"", timeout=0.1))
        assert grpc.StatusCode.DEADLINE_EXCEEDED is error.code()
    finally:
        leave.set()


async def test_time_remaining_is_known_on_both_sides(network: Network) -> None:
    async def tell(_request: bytes, context: Any) -> bytes:
        remaining = context.time_remaining()
        return b"none" if remaining is None else b"%f" % remaining

    stub = await network.serve({"Call": unary(tell)})
    assert b"none" == await within(stub.unary()(b""))
    call = stub.unary()(b"", timeout=20)
    assert 0 < call.time_remaining() <= 20
    # grpcio's server rounds the deadline up.
    assert 0 < float(await within(call)) <= 21
    assert stub.unary()(b"").time_remaining() is None


async def test_done_callbacks_of_the_server_run_once_the_handler_ended(network: Network) -> None:
    done: asyncio.Queue[Any] = asyncio.Queue()

    async def succeed(request: bytes, context: Any) -> bytes:
        context.add_done_callback(done.put_nowait)
        assert not context.done()
        assert not context.cancelled()
        return request

    async def abort(_request: bytes, context: Any) -> bytes:
        context.add_done_callback(done.put_nowait)
        await context.abort(grpc.StatusCode.ABORTED, "why")
        return b""

    stub = await network.serve({"Succeed": unary(succeed), "Abort": unary(abort)})
    await within(stub.unary("Succeed")(b""))
    context = await within(done.get())
    assert context.done()
    assert not context.cancelled()
    await failure(stub.unary("Abort")(b""))
    context = await within(done.get())
    assert context.done()
    assert grpc.StatusCode.ABORTED is context.code()
    assert done.empty()


async def test_done_callbacks_of_the_server_run_after_cancellation(network: Network) -> None:
    done: asyncio.Queue[Any] = asyncio.Queue()
    started = asyncio.Event()

    async def wait(_request: bytes, context: Any) -> bytes:
        context.add_done_callback(done.put_nowait)
        started.set()
        await asyncio.Event().wait()
        return b""

    stub = await network.serve({"Call": unary(wait)})
    call = stub.unary()(b"")
    await within(started.wait())
    call.cancel()
    await within(done.get())


async def test_done_callbacks_of_the_client_get_the_call(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)})
    done: asyncio.Queue[Any] = asyncio.Queue()
    call = stub.unary()(b"x")
    call.add_done_callback(done.put_nowait)
    assert call is await within(done.get())
    assert b"x" == await within(call)
    call.add_done_callback(done.put_nowait)
    assert call is done.get_nowait()


async def test_request_iterator_that_raises_cancels_the_call(network: Network) -> None:
    waiting = Waiting()

    async def broken() -> AsyncIterator[bytes]:
        yield b"a"
        await waiting.started.wait()
        raise ValueError("the iterator of the application is broken")

    stub = await network.serve({"Call": requests(waiting.unary)})
    call = stub.requests()(broken())
    with pytest.raises(asyncio.CancelledError):
        await within(call)
    await within(waiting.cancelled.wait())
    assert grpc.StatusCode.CANCELLED is await within(call.code())


async def test_server_vanishing_ends_calls_unavailable(network: Network) -> None:
    waiting = Waiting()
    server, address = await network.start({"Call": unary(waiting.unary)})
    call = network.channel(address).unary_unary("/contract.Service/Call")(b"")
    await within(waiting.started.wait())
    await within(server.stop(None))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(call)).code()
    await within(waiting.cancelled.wait())


async def test_slow_reader_holds_the_writer_back(network: Network) -> None:
    written = 0
    chunk = bytes(16 * 1024)

    async def flood(_request: bytes, context: Any) -> None:
        nonlocal written
        for _ in range(1000):
            await context.write(chunk)
            written += 1

    stub = await network.serve({"Call": responses(flood)})
    call = stub.responses()(b"")
    assert chunk == await within(call.read())
    # Without flow control all 16 MB are written in far less than this.
    for _ in range(100):
        await asyncio.sleep(0.002)
    assert written < 900
    assert 999 == len(await within(_read_all(call)))
    assert 1000 == written


async def _read_all(call: Any) -> list[bytes]:
    got = []
    while (message := await call.read()) is not grpc.aio.EOF:
        got.append(message)
    return got


async def test_stream_may_be_left_early_and_the_channel_goes_on(network: Network) -> None:
    async def endless(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    stub = await network.serve({"Call": responses(endless), "Echo": unary(echo)})
    for _ in range(5):
        call = stub.responses()(b"")
        async for _ in call:
            break
        call.cancel()
        assert b"ok" == await within(stub.unary("Echo")(b"ok"))


async def test_collecting_continues_where_iteration_stopped(network: Network) -> None:
    async def count(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(4):
            yield b"%d" % number

    stub = await network.serve({"Call": responses(count)})
    call = stub.responses()(b"")
    async for response in call:
        assert b"0" == response
        break
    assert [b"1", b"2", b"3"] == await within(collect(call))
