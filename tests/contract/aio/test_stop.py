"""Stopping a server: immediately, gracefully, twice; waiting for its end."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import SERVICE, Network, echo, failure, unary, within


class Gate:
    """A handler that answers when it is let."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, request: bytes, _context: Any) -> bytes:
        self.started.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request


async def _blocked_call(network: Network) -> tuple[Any, Gate, Any, Any]:
    gate = Gate()

    async def call_gate(request: bytes, context: Any) -> bytes:
        return await gate(request, context)

    server, address = await network.start({"Call": unary(call_gate), "Echo": unary(echo)})
    channel = network.channel(address)
    call = channel.unary_unary(f"/{SERVICE}/Call")(b"x")
    await within(gate.started.wait())
    return server, gate, call, channel


async def test_stop_without_grace_ends_calls_unavailable(network: Network) -> None:
    server, gate, call, _ = await _blocked_call(network)
    await within(server.stop(None))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(call)).code()
    await within(gate.cancelled.wait())


async def test_stop_with_grace_lets_calls_finish(network: Network) -> None:
    server, gate, call, _ = await _blocked_call(network)
    stopping = asyncio.ensure_future(server.stop(60))
    await asyncio.sleep(0)
    gate.open.set()
    assert b"x" == await within(call)
    await within(stopping)
    assert not gate.cancelled.is_set()


async def test_grace_ends_calls_when_it_is_over(network: Network) -> None:
    server, gate, call, _ = await _blocked_call(network)
    await within(server.stop(0.1))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(call)).code()
    await within(gate.cancelled.wait())


async def test_second_stop_shortens_the_grace(network: Network) -> None:
    server, _gate, call, _ = await _blocked_call(network)
    patient = asyncio.ensure_future(server.stop(600))
    await asyncio.sleep(0.05)
    assert not patient.done()
    await within(server.stop(None))
    await within(patient)
    assert grpc.StatusCode.UNAVAILABLE is (await failure(call)).code()


async def test_second_stop_does_not_lengthen_the_grace(network: Network) -> None:
    server, _gate, call, _ = await _blocked_call(network)
    short = asyncio.ensure_future(server.stop(0.1))
    await asyncio.sleep(0)
    await within(server.stop(600))
    await within(short)
    assert grpc.StatusCode.UNAVAILABLE is (await failure(call)).code()


async def test_stopping_refuses_new_calls(network: Network) -> None:
    server, gate, call, channel = await _blocked_call(network)
    stopping = asyncio.ensure_future(server.stop(600))
    # The GOAWAY is on its way when the server says that it listens no more.
    await asyncio.sleep(0.2)
    error = await failure(channel.unary_unary(f"/{SERVICE}/Echo")(b"y", timeout=30))
    assert grpc.StatusCode.UNAVAILABLE is error.code()
    gate.open.set()
    assert b"x" == await within(call)
    await within(stopping)


async def test_stop_is_idempotent_and_allowed_before_start(network: Network) -> None:
    server = network.new_server({"Call": unary(echo)})
    await within(server.stop(None))
    started, _ = await network.start({"Call": unary(echo)})
    await within(started.stop(None))
    await within(started.stop(None))
    await within(started.stop(1))


async def test_wait_for_termination_tells_whether_time_ran_out(network: Network) -> None:
    server, _ = await network.start({"Call": unary(echo)})
    assert await within(server.wait_for_termination(timeout=0.01))
    waiting = asyncio.ensure_future(server.wait_for_termination())
    await asyncio.sleep(0)
    assert not waiting.done()
    await within(server.stop(None))
    assert not await within(waiting)
    assert not await within(server.wait_for_termination(timeout=5))


async def test_stopped_server_cannot_start_again(network: Network) -> None:
    server, _ = await network.start({"Call": unary(echo)})
    await within(server.stop(None))
    with pytest.raises(grpc.aio.UsageError):
        await server.start()


async def test_port_is_free_after_stop(network: Network) -> None:
    server, address = await network.start({"Call": unary(echo)})
    await within(server.stop(None))
    again = network.new_server({"Call": unary(echo)})
    assert int(address.rpartition(":")[2]) == again.add_insecure_port(address)
    await again.start()
    channel = network.channel(address)
    assert b"x" == await within(channel.unary_unary(f"/{SERVICE}/Call")(b"x", wait_for_ready=True))
