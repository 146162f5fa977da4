"""Message sizes, concurrency and options."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    SERVICE,
    Network,
    Stub,
    echo,
    failure,
    requests,
    responses,
    unary,
    within,
)

MIB = 1024 * 1024


async def test_messages_up_to_four_mebibytes_are_accepted(network: Network) -> None:
    async def size(request: bytes, _context: Any) -> bytes:
        return b"%d" % len(request)

    stub = await network.serve({"Call": unary(size)})
    assert b"%d" % (4 * MIB) == await within(stub.unary()(bytes(4 * MIB)))


async def test_larger_request_is_refused_by_the_server(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo), "In": requests(_join)})
    for call in (
        stub.unary()(bytes(4 * MIB + 1)),
        stub.requests("In")(iter([b"small", bytes(4 * MIB + 1)])),
    ):
        error = await failure(call)
        assert grpc.StatusCode.RESOURCE_EXHAUSTED is error.code()
        assert str(4 * MIB + 1) in (error.details() or "")
        assert str(4 * MIB) in (error.details() or "")
    assert b"x" == await within(stub.unary()(b"x"))


async def test_larger_response_is_refused_by_the_client(network: Network) -> None:
    async def grow(request: bytes, _context: Any) -> bytes:
        return bytes(int(request))

    stub = await network.serve({"Call": unary(grow)})
    error = await failure(stub.unary()(b"%d" % (4 * MIB + 1)))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is error.code()
    assert b"\0" == await within(stub.unary()(b"1"))


async def test_limits_can_be_raised_and_lifted(network: Network) -> None:
    options = [("grpc.max_receive_message_length", -1)]
    _, address = await network.start({"Call": unary(echo)}, options=options)
    stub = Stub(network.channel(address, options=options))
    message = bytes(5 * MIB)
    assert message == await within(stub.unary()(message))


async def test_limits_can_be_lowered(network: Network) -> None:
    options = [("grpc.max_receive_message_length", 100)]
    _, address = await network.start({"Call": unary(echo)}, options=options)
    stub = Stub(network.channel(address))
    assert bytes(100) == await within(stub.unary()(bytes(100)))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is (await failure(stub.unary()(bytes(101)))).code()


async def test_server_refuses_to_send_more_than_it_may(network: Network) -> None:
    async def stream(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield bytes(int(request))

    async def grow(request: bytes, _context: Any) -> bytes:
        return bytes(int(request))

    stub = await network.serve(
        {"Call": unary(grow), "Stream": responses(stream)},
        options=[("grpc.max_send_message_length", 1000)],
    )
    assert bytes(1000) == await within(stub.unary()(b"1000"))
    error = await failure(stub.unary()(b"1001"))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is error.code()
    error = await failure(stub.responses("Stream")(b"1001"))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is error.code()


async def test_client_refuses_to_send_more_than_it_may(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)})
    stub = Stub(network.channel(address, options=[("grpc.max_send_message_length", 1000)]))
    assert bytes(1000) == await within(stub.unary()(bytes(1000)))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is (await failure(stub.unary()(bytes(1001)))).code()


async def test_calls_above_the_limit_of_concurrency_are_refused(network: Network) -> None:
    started: asyncio.Queue[None] = asyncio.Queue()
    leave = asyncio.Event()

    async def wait(request: bytes, _context: Any) -> bytes:
        started.put_nowait(None)
        await leave.wait()
        return request

    stub = await network.serve({"Call": unary(wait)}, maximum_concurrent_rpcs=2)
    held = [stub.unary()(b"held") for _ in range(2)]
    for _ in held:
        await within(started.get())
    error = await failure(stub.unary()(b"more"))
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is error.code()
    leave.set()
    assert [b"held", b"held"] == [await within(call) for call in held]
    # The slots are free again; grpcio's server needs a moment to notice.
    assert b"again" == await within(_until_accepted(stub, b"again"))


async def _until_accepted(stub: Stub, request: bytes) -> bytes:
    while True:
        call = stub.unary()(request)
        code = await call.code()
        if code is grpc.StatusCode.OK:
            response: bytes = await call
            return response
        assert grpc.StatusCode.RESOURCE_EXHAUSTED is code
        await asyncio.sleep(0.01)


async def test_limit_of_concurrency_must_be_positive(network: Network) -> None:
    with pytest.raises(ValueError, match="positive"):
        network.new_server({}, maximum_concurrent_rpcs=0)


async def test_options_without_a_meaning_are_ignored(network: Network) -> None:
    options = [("grpc.http2.max_pings_without_data", 0), ("some.other.option", "x")]
    _, address = await network.start({"Call": unary(echo)}, options=options)
    stub = Stub(network.channel(address, options=options))
    assert b"x" == await within(stub.unary()(b"x"))


async def test_taken_port_cannot_be_added(network: Network) -> None:
    options = [("grpc.so_reuseport", 0)]
    first = network.new_server({}, options=options)
    port = first.add_insecure_port("127.0.0.1:0")
    await first.start()
    second = network.new_server({}, options=options)
    with pytest.raises(RuntimeError, match=r"[Bb]ind"):
        second.add_insecure_port(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["[::1]:0", "localhost:0", "[::]:0", "0.0.0.0:0"])
async def test_addresses_of_all_forms_can_be_added(network: Network, address: str) -> None:
    server = network.new_server({"Call": unary(echo)})
    port = server.add_insecure_port(address)
    assert port > 0
    await server.start()
    host = "[::1]" if "::1" in address else "localhost" if "local" in address else "127.0.0.1"
    channel = network.channel(f"{host}:{port}")
    assert b"x" == await within(channel.unary_unary(f"/{SERVICE}/Call")(b"x"))


async def test_unix_sockets_serve_too(network: Network, tmp_path: Any) -> None:
    server = network.new_server({"Call": unary(echo)})
    path = tmp_path / "s.sock"
    assert 1 == server.add_insecure_port(f"unix:{path}")
    await server.start()
    # grpcio's client would name the encoded path as authority, see the page of differences.
    channel = network.channel(f"unix:{path}", options=[("grpc.default_authority", "localhost")])
    assert b"x" == await within(channel.unary_unary(f"/{SERVICE}/Call")(b"x"))


async def _join(request_iterator: Any, _context: Any) -> bytes:
    return b"".join([request async for request in request_iterator])


async def test_a_grace_after_a_connections_age_ends_its_calls(network: Network) -> None:
    async def go_on(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    ages = [("grpc.max_connection_age_ms", 100), ("grpc.max_connection_age_grace_ms", 100)]
    stub = await network.serve({"Call": responses(go_on)}, options=ages)
    assert grpc.StatusCode.UNAVAILABLE is (await failure(stub.responses()(b""))).code()


async def test_a_connection_without_calls_is_closed(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)}, options=[("grpc.max_connection_idle_ms", 50)])
    for _ in range(2):
        assert b"x" == await within(stub.unary()(b"x"))
        await within(stub.channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
