"""After any storm of cancels and deadlines, every call has ended once and nothing is held."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    Network,
    Side,
    Stub,
    both,
    collect,
    responses,
    unary,
    within,
)
from tests.support.waiting import eventually

CALLS = 2000
CALLERS = 40
SEED = 20


async def _unary(request: bytes, _context: Any) -> bytes:
    await asyncio.sleep(len(request) / 1e6)
    return request


async def _responses(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    for number in range(len(request) % 50 or 50):
        yield request
        if number % 10 == 9:
            await asyncio.sleep(0.001)


async def _both(request_iterator: Any, _context: Any) -> AsyncIterator[bytes]:
    async for request in request_iterator:
        yield request


def _plain(request: bytes, _context: Any) -> bytes:
    threading.Event().wait(len(request) / 2e6)
    return request


METHODS = {
    "Unary": unary(_unary),
    "Responses": responses(_responses),
    "Both": both(_both),
    "Plain": unary(_plain),
}


def _start(stub: Stub, chance: random.Random, message: bytes) -> Any:
    timeout = chance.choice([None, None, 0.005, 5.0])
    kind = chance.choice([*METHODS])
    if kind == "Responses":
        return stub.responses(kind)(message, timeout=timeout)
    if kind == "Both":
        return stub.both(kind)(iter([message] * chance.randrange(20)), timeout=timeout)
    return stub.unary(kind)(message, timeout=timeout)


async def _outcome(call: Any, message: bytes) -> str:
    try:
        if hasattr(call, "__await__"):
            assert message == await call
        else:
            assert {message} >= set(await collect(call))
    except asyncio.CancelledError:
        return "CANCELLED"
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [range(3000), range(1)], ids=["any size", "empty"])
async def test_storms_of_cancels_leave_nothing_behind(client_side: Side, sizes: range) -> None:
    network = Network(PYSERVE, client_side)
    server, address = await network.start(METHODS)
    stub = Stub(network.channel(address))
    chance = random.Random(SEED)
    outcomes: list[str] = []

    async def caller() -> None:
        for _ in range(CALLS // CALLERS):
            message = bytes(chance.choice(sizes))
            call = _start(stub, chance, message)
            if chance.random() < 0.2:
                asyncio.get_running_loop().call_later(chance.random() * 0.01, call.cancel)
            outcomes.append(await within(_outcome(call, message)))

    await asyncio.gather(*[caller() for _ in range(CALLERS)])

    assert CALLS == len(outcomes)
    # grpcio's client may give its own failure to write as INTERNAL when a call ends meanwhile.
    expected = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}
    assert expected >= set(outcomes) - ({"INTERNAL"} if client_side is not PYSERVE else set())
    assert {"OK", "CANCELLED"} <= set(outcomes)
    await eventually(lambda: server.native.in_flight() == 0)
    assert {} == server._endpoint.receivers
    await network.close()
