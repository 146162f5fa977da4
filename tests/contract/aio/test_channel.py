"""Channels: states, waiting for readiness, closing."""

import asyncio
import socket
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import SERVICE, Network, Stub, both, echo, failure, unary, within


def _free_port() -> int:
    """Return a port on which nobody listens, until somebody does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_channel_goes_from_idle_to_ready(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)})
    channel = network.channel(address)
    assert grpc.ChannelConnectivity.IDLE is channel.get_state()
    await within(channel.channel_ready())
    assert grpc.ChannelConnectivity.READY is channel.get_state()


async def test_state_changes_are_announced(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)})
    channel = network.channel(address)
    waiting = asyncio.ensure_future(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE))
    await asyncio.sleep(0)
    assert not waiting.done()
    channel.get_state(try_to_connect=True)
    await within(waiting)
    assert grpc.ChannelConnectivity.IDLE is not channel.get_state()
    # Another state than the current one is a change already.
    await within(channel.wait_for_state_change(grpc.ChannelConnectivity.SHUTDOWN))


async def test_closed_channel_is_shut_down(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)})
    channel = network.channel(address)
    await within(Stub(channel).unary()(b"x"))
    await within(channel.close())
    await within(channel.close())
    with pytest.raises(grpc.aio.UsageError):
        Stub(channel).unary()(b"x")


async def test_channel_closes_with_its_context(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)})
    async with network.client_side.insecure_channel(address) as channel:
        assert b"x" == await within(Stub(channel).unary()(b"x"))
    with pytest.raises(grpc.aio.UsageError):
        Stub(channel).unary()(b"x")


async def test_closing_with_grace_lets_calls_finish(network: Network) -> None:
    leave = asyncio.Event()
    started = asyncio.Event()

    async def wait(request: bytes, _context: Any) -> bytes:
        started.set()
        await leave.wait()
        return request

    _, address = await network.start({"Call": unary(wait)})
    channel = network.channel(address)
    call = Stub(channel).unary()(b"x")
    await within(started.wait())
    closing = asyncio.ensure_future(channel.close(grace=60))
    await asyncio.sleep(0)
    leave.set()
    assert b"x" == await within(call)
    await within(closing)


async def test_grace_must_not_be_negative(network: Network) -> None:
    _, address = await network.start({"Call": unary(echo)})
    channel = network.channel(address)
    with pytest.raises(ValueError, match="non-negative"):
        await channel.close(grace=-1)


async def test_call_without_a_server_is_unavailable(network: Network) -> None:
    stub = Stub(network.channel(f"127.0.0.1:{_free_port()}"))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(stub.unary()(b"x"))).code()


async def test_call_may_wait_for_the_server(network: Network) -> None:
    port = _free_port()
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
    stub = Stub(network.channel(f"127.0.0.1:{port}", options=options))
    call = stub.unary()(b"x", wait_for_ready=True, timeout=30)
    # The first attempt has failed when the channel says so.
    channel = stub.channel
    state = channel.get_state()
    while state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        await within(channel.wait_for_state_change(state))
        state = channel.get_state()
    server = network.new_server({"Call": unary(echo)})
    assert port == server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    assert b"x" == await within(call)


async def test_waiting_call_ends_at_its_deadline(network: Network) -> None:
    stub = Stub(network.channel(f"127.0.0.1:{_free_port()}"))
    error = await failure(stub.unary()(b"x", wait_for_ready=True, timeout=0.2))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is error.code()


async def test_calls_wait_for_their_connection(network: Network) -> None:
    async def echo_all(request_iterator: Any, _context: Any) -> Any:
        async for request in request_iterator:
            yield request

    _, address = await network.start({"Call": both(echo_all), "Echo": unary(echo)})
    channel = network.channel(address)
    call = Stub(channel).both()()
    await within(call.wait_for_connection())
    await within(call.write(b"x"))
    assert b"x" == await within(call.read())
    await within(call.done_writing())
    lost = Stub(network.channel(f"127.0.0.1:{_free_port()}")).unary("Echo")(b"x")
    with pytest.raises(grpc.aio.AioRpcError):
        await within(lost.wait_for_connection())


async def test_channel_reconnects_to_a_server_that_came_back(network: Network) -> None:
    server, address = await network.start({"Call": unary(echo)})
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
    channel = network.channel(address, options=options)
    stub = Stub(channel)
    assert b"x" == await within(stub.unary()(b"x"))
    await within(server.stop(None))
    # A call that is sent on the old connection before its end is known may fail.
    await within(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
    again = network.new_server({"Call": unary(echo)})
    again.add_insecure_port(address)
    await again.start()
    assert b"y" == await within(stub.unary()(b"y", wait_for_ready=True))


@pytest.mark.parametrize("form", ["dns:///localhost:{}", "localhost:{}", "ipv4:127.0.0.1:{}"])
async def test_targets_of_all_forms_are_reached(network: Network, form: str) -> None:
    _, address = await network.start({"Call": unary(echo)})
    channel = network.channel(form.format(address.rpartition(":")[2]))
    assert b"x" == await within(channel.unary_unary(f"/{SERVICE}/Call")(b"x"))
