"""The four kinds of calls, in every style a handler or a caller may write them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    Network,
    both,
    collect,
    echo,
    requests,
    responses,
    unary,
    within,
)


async def test_unary_call_returns_the_response(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)})
    assert b"hello" == await within(stub.unary()(b"hello"))


async def test_empty_messages_arrive_as_empty_messages(network: Network) -> None:
    async def count(request_iterator: Any, _context: Any) -> bytes:
        return b",".join([b"%d" % len(request) async for request in request_iterator])

    stub = await network.serve({"Call": unary(echo), "Count": requests(count)})
    assert b"" == await within(stub.unary()(b""))
    assert b"0,0,0" == await within(stub.requests("Count")(iter([b"", b"", b""])))


async def test_async_generator_streams_its_responses_in_order(network: Network) -> None:
    async def repeat(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(200):
            yield request + b"%d" % number

    stub = await network.serve({"Call": responses(repeat)})
    expected = [b"x%d" % number for number in range(200)]
    assert expected == await within(collect(stub.responses()(b"x")))


async def test_coroutine_handler_writes_its_responses(network: Network) -> None:
    async def write(request: bytes, context: Any) -> None:
        await context.write(request)
        await context.write(request + request)

    stub = await network.serve({"Call": responses(write)})
    assert [b"a", b"aa"] == await within(collect(stub.responses()(b"a")))


async def test_stream_without_responses_ends_ok(network: Network) -> None:
    async def nothing(_request: bytes, _context: Any) -> None:
        return None

    stub = await network.serve({"Call": responses(nothing)})
    call = stub.responses()(b"")
    assert [] == await within(collect(call))
    assert grpc.StatusCode.OK is await within(call.code())


async def test_request_iterator_is_read_to_its_end(network: Network) -> None:
    async def join(request_iterator: Any, _context: Any) -> bytes:
        return b"+".join([request async for request in request_iterator])

    async def generate() -> AsyncIterator[bytes]:
        for letter in (b"a", b"b", b"c"):
            yield letter

    stub = await network.serve({"Call": requests(join)})
    assert b"a+b+c" == await within(stub.requests()(generate()))
    assert b"d+e" == await within(stub.requests()([b"d", b"e"]))
    assert b"" == await within(stub.requests()(iter([])))


async def test_handler_reads_requests_through_the_context(network: Network) -> None:
    async def read(_request_iterator: Any, context: Any) -> bytes:
        parts = []
        while (part := await context.read()) is not grpc.aio.EOF:
            parts.append(part)
        assert await context.read() is grpc.aio.EOF
        return b"+".join(parts)

    stub = await network.serve({"Call": requests(read)})
    assert b"a+b" == await within(stub.requests()(iter([b"a", b"b"])))


async def test_caller_writes_and_reads_in_turns(network: Network) -> None:
    async def answer(request_iterator: Any, _context: Any) -> AsyncIterator[bytes]:
        async for request in request_iterator:
            yield request.upper()

    stub = await network.serve({"Call": both(answer)})
    call = stub.both()()
    for letter in (b"a", b"b", b"c"):
        await within(call.write(letter))
        assert letter.upper() == await within(call.read())
    await within(call.done_writing())
    assert grpc.aio.EOF == await within(call.read())
    assert grpc.StatusCode.OK is await within(call.code())


async def test_coroutine_handler_reads_and_writes_in_turns(network: Network) -> None:
    async def answer(_request_iterator: Any, context: Any) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(request * 2)

    stub = await network.serve({"Call": both(answer)})
    assert [b"aa", b"bb"] == await within(collect(stub.both()(iter([b"a", b"b"]))))


async def test_handler_may_answer_before_the_client_has_ended(network: Network) -> None:
    async def first(request_iterator: Any, _context: Any) -> bytes:
        async for request in request_iterator:
            return bytes(request)
        return b""

    stub = await network.serve({"Call": requests(first)})
    call = stub.requests()()
    await within(call.write(b"first"))
    assert b"first" == await within(call)


async def test_unary_responses_of_written_requests_can_be_awaited(network: Network) -> None:
    async def count(request_iterator: Any, _context: Any) -> bytes:
        return b"%d" % len([request async for request in request_iterator])

    stub = await network.serve({"Call": requests(count)})
    call = stub.requests()()
    await within(call.write(b"a"))
    await within(call.write(b"b"))
    await within(call.done_writing())
    await within(call.done_writing())
    assert b"2" == await within(call)


async def test_plain_functions_and_generators_serve_all_kinds(network: Network) -> None:
    def double(request: bytes, _context: Any) -> bytes:
        return request * 2

    def split(request: bytes, _context: Any) -> Iterator[bytes]:
        for value in request:
            yield bytes([value])

    def join(request_iterator: Iterator[bytes], _context: Any) -> bytes:
        return b"+".join(request_iterator)

    def repeat(request_iterator: Iterator[bytes], _context: Any) -> Iterator[bytes]:
        for request in request_iterator:
            yield request
            yield request

    stub = await network.serve(
        {
            "Double": unary(double),
            "Split": responses(split),
            "Join": requests(join),
            "Repeat": both(repeat),
        }
    )
    assert b"abab" == await within(stub.unary("Double")(b"ab"))
    assert [b"a", b"b"] == await within(collect(stub.responses("Split")(b"ab")))
    assert b"a+b" == await within(stub.requests("Join")(iter([b"a", b"b"])))
    assert [b"a", b"a", b"b", b"b"] == await within(
        collect(stub.both("Repeat")(iter([b"a", b"b"])))
    )


async def test_concurrent_calls_do_not_mix(network: Network) -> None:
    async def slow_echo(request: bytes, _context: Any) -> bytes:
        await asyncio.sleep(0.001 * (int(request) % 3))
        return request

    stub = await network.serve({"Call": unary(slow_echo)})
    call = stub.unary()
    answers = await within(asyncio.gather(*[call(b"%d" % number) for number in range(300)]))
    assert [b"%d" % number for number in range(300)] == answers


async def test_large_messages_arrive_whole_both_ways(network: Network) -> None:
    async def copies(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for _ in range(4):
            yield request

    stub = await network.serve({"Call": unary(echo), "Copies": responses(copies)})
    message = bytes(range(256)) * 4096  # 1 MiB
    assert message == await within(stub.unary()(message))
    assert [message] * 4 == await within(collect(stub.responses("Copies")(message)))


async def test_iterating_and_reading_may_not_be_mixed(network: Network) -> None:
    async def repeat(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield request
        yield request

    stub = await network.serve({"Call": responses(repeat), "Both": both(_echo_all)})
    call = stub.responses()(b"x")
    assert b"x" == await within(call.read())
    with pytest.raises(grpc.aio.UsageError):
        aiter(call)
    writing = stub.both("Both")(iter([b"a"]))
    with pytest.raises(grpc.aio.UsageError):
        await within(writing.write(b"b"))
    with pytest.raises(grpc.aio.UsageError):
        await within(writing.done_writing())
    assert [b"a"] == await within(collect(writing))


async def test_writing_after_done_writing_is_refused(network: Network) -> None:
    stub = await network.serve({"Call": both(_echo_all)})
    call = stub.both()()
    await within(call.write(b"a"))
    await within(call.done_writing())
    with pytest.raises(asyncio.InvalidStateError):
        await within(call.write(b"b"))
    assert [b"a"] == await within(collect(call))
    with pytest.raises(asyncio.InvalidStateError):
        await within(call.write(b"c"))


async def test_a_response_can_be_awaited_twice(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)})
    call = stub.unary()(b"same")
    assert (b"same", b"same") == (await within(call), await within(call))
    assert call.done()
    assert not call.cancelled()
    assert not call.cancel()


async def _echo_all(request_iterator: Any, _context: Any) -> AsyncIterator[bytes]:
    async for request in request_iterator:
        yield request


async def test_one_response_is_returned_and_not_written() -> None:
    network = Network(PYSERVE, PYSERVE)

    async def write(_requests: Any, context: Any) -> bytes:
        with pytest.raises(grpc.aio.UsageError, match="return it"):
            await context.write(b"x")
        return b"returned"

    stub = await network.serve({"In": requests(write), "Call": unary(write)})
    assert b"returned" == await within(stub.requests("In")(iter([b"a"])))
    assert b"returned" == await within(stub.unary()(b"a"))
    with pytest.raises(TypeError, match="must be bytes, not None"):
        stub.unary()(None)
    await network.close()
