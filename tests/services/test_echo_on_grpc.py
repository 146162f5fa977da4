"""The echo service on grpcio's own server: its behaviour does not depend on the server."""

import asyncio

import grpc
import pytest
from google.protobuf import any_pb2

from pyserve import aio
from services.echo import echo_pb2, echo_pb2_grpc, forking
from services.echo.service import Echo
from tests.support.waiting import eventually


@pytest.fixture
async def address():
    server = grpc.aio.server()
    echo_pb2_grpc.add_EchoServicer_to_server(Echo.target(), server)  # type: ignore[attr-defined]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def stub(address):
    async with grpc.aio.insecure_channel(address) as channel:
        yield echo_pb2_grpc.EchoStub(channel)


@pytest.mark.parametrize("method", ["Echo", "EchoSuspend", "EchoSync"])
async def test_the_echo_methods_return_the_payload(stub, method):
    reply = await getattr(stub, method)(echo_pb2.EchoRequest(payload=b"abc"), timeout=30)
    assert b"abc" == reply.payload


async def test_a_stream_has_as_many_messages_as_asked_for(stub):
    call = stub.EchoStream(echo_pb2.StreamRequest(payload=b"x", messages=5), timeout=30)
    assert [b"x"] * 5 == [reply.payload async for reply in call]


@pytest.mark.parametrize("method", ["Perform", "PerformSync"])
async def test_facts_tell_of_the_deadline_and_the_metadata(stub, method):
    request = echo_pb2.PerformRequest(response_bytes=1000, describe=True)
    metadata = (("key", "value"), ("key-bin", b"\xff"))
    reply = await getattr(stub, method)(request, timeout=5, metadata=metadata)
    assert bytes(1000) == reply.payload
    # grpcio rounds up what it sends and counts from its own clock.
    assert 0 < reply.facts.time_remaining_s < 5.5
    pairs = {pair.key: pair.value for pair in reply.facts.metadata}
    assert (b"value", b"\xff") == (pairs["key"], pairs["key-bin"])


@pytest.mark.parametrize("method", ["Perform", "PerformSync"])
async def test_metadata_comes_back_where_its_prefix_says(stub, method):
    metadata = (("echo-initial-a", "1"), ("echo-trailing-b-bin", b"\x00\xff"))
    call = getattr(stub, method)(echo_pb2.PerformRequest(), timeout=5, metadata=metadata)
    await call
    assert ("echo-initial-a", "1") in list(await call.initial_metadata())
    assert ("echo-trailing-b-bin", b"\x00\xff") in list(await call.trailing_metadata())


@pytest.mark.parametrize("method", ["Perform", "PerformSync"])
async def test_a_status_is_given_as_told_with_its_details(stub, method):
    status = echo_pb2.Status(code=9, message="not 10 € now")
    status.details.append(any_pb2.Any(type_url="example/thing", value=b"\x01"))
    request = echo_pb2.PerformRequest(status=status)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(stub, method)(request, timeout=5, metadata=(("echo-trailing-a", "1"),))
    assert grpc.StatusCode.FAILED_PRECONDITION is caught.value.code()
    assert "not 10 € now" == caught.value.details()
    trailing = dict(caught.value.trailing_metadata())
    assert "1" == trailing["echo-trailing-a"]
    assert status == echo_pb2.Status.FromString(trailing["grpc-status-details-bin"])


async def check_status(stub, request, code):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Perform(request, timeout=30)
    assert code is caught.value.code()


async def test_an_unknown_status_code_is_an_invalid_argument(stub):
    request = echo_pb2.PerformRequest(status=echo_pb2.Status(code=77))
    await check_status(stub, request, grpc.StatusCode.INVALID_ARGUMENT)


async def test_an_exception_is_raised_as_told(stub):
    await check_status(stub, echo_pb2.PerformRequest(raise_text="secret"), grpc.StatusCode.UNKNOWN)


async def read_into(received, call):
    """Iterate, since read() raises a status that is here before the first read."""
    async for message in call:
        received += [message.payload]


@pytest.mark.parametrize("method", ["PerformStream", "PerformStreamSync"])
async def test_a_stream_sends_its_messages_before_its_status(address, method):
    each = echo_pb2.PerformRequest(payload=b"y", status=echo_pb2.Status(code=5))
    request = echo_pb2.PerformStreamRequest(messages=3, each=each)
    received: list[bytes] = []
    # grpcio's client drops what it has not read when a status other than OK comes.
    async with aio.insecure_channel(address) as channel:
        call = getattr(echo_pb2_grpc.EchoStub(channel), method)(request, timeout=30)
        with pytest.raises(grpc.aio.AioRpcError):
            await read_into(received, call)
        assert [b"y"] * 3 == received
        assert grpc.StatusCode.NOT_FOUND is await call.code()


async def test_requests_are_collected_and_conversed(stub):
    requests = [echo_pb2.PerformRequest(payload=bytes(size)) for size in (1, 20, 300)]
    collected = await stub.Collect(iter(requests), timeout=30)
    assert (3, 321) == (collected.messages, collected.payload_bytes)
    call = stub.Converse(timeout=30)
    for request in requests:
        await call.write(request)
        assert request.payload == (await call.read()).payload
    await call.done_writing()
    assert grpc.aio.EOF is await call.read()


async def test_every_end_is_counted_once(stub):
    async def counters():
        count = await stub.Count(echo_pb2.CountRequest(), timeout=30)
        return count.started, count.succeeded, count.failed, count.cancelled

    await stub.Perform(echo_pb2.PerformRequest(), timeout=30)
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Perform(echo_pb2.PerformRequest(status=echo_pb2.Status(code=3)), timeout=30)
    hanging = stub.Perform(echo_pb2.PerformRequest(delay_s=3600), timeout=60)
    started = asyncio.ensure_future(hanging)

    async def third_started():
        return (3, 1, 1, 0) == await counters()

    await eventually(third_started)
    started.cancel()

    async def third_cancelled():
        return (3, 1, 1, 1) == await counters()

    await eventually(third_cancelled)


def test_listening_sockets_are_found(tmp_path):
    import socket

    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        unix.bind(str(tmp_path / "s"))
        before = forking.listening_sockets()
        tcp.listen()
        unix.listen()
        expected = {f"tcp:{tcp.getsockname()[1]}", f"unix:{tmp_path / 's'}"}
        assert expected == set(forking.listening_sockets()) - set(before)
