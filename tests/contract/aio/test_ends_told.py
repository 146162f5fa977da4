"""A server tells the end of each call once, however it ends; for the access log."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pyserve import aio
from pyserve.aio import EndedCall, _dispatch, _tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.parity("G-81")
SERVICE = "tests.Ends"
METADATA = (("x-request-id", "r-1"),)
TIMEOUT_S = 30


async def echo(request: bytes, _context: Any) -> bytes:
    return request


def echo_in_thread(request: bytes, _context: Any) -> bytes:
    return request


async def refuse(_request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.NOT_FOUND, "not here")
    return b""


async def count(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
    for number in range(3):
        yield bytes([number])


async def wait(_request: bytes, _context: Any) -> bytes:
    await asyncio.Event().wait()
    return b""


@pytest.fixture
async def ends() -> list[EndedCall]:
    return []


@pytest.fixture
async def server(ends: list[EndedCall]) -> AsyncIterator[aio.Server]:
    made = aio.server()
    unary: Any = grpc.unary_unary_rpc_method_handler
    handlers = {
        "Echo": unary(echo),
        "Thread": unary(echo_in_thread),
        "Refuse": unary(refuse),
        "Wait": unary(wait),
        "Count": grpc.unary_stream_rpc_method_handler(count),
    }
    made.add_registered_method_handlers(SERVICE, handlers)
    yield made
    await made.stop(None)


@pytest.fixture
async def channel(server: aio.Server, ends: list[EndedCall]) -> AsyncIterator[aio.Channel]:
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    server.tell_ends(ends.append)
    async with aio.insecure_channel(f"127.0.0.1:{port}") as made:
        yield made


async def call(channel: aio.Channel, method: str, *more: tuple[str, str]) -> None:
    path, metadata = f"/{SERVICE}/{method}", (*METADATA, *more)
    try:
        if method == "Count":
            async for _ in channel.unary_stream(path)(b"x", metadata=metadata):
                pass
        else:
            await channel.unary_unary(path)(b"x", metadata=metadata)
    except grpc.RpcError:
        return


@pytest.mark.parametrize(
    ("method", "metadata", "code"),
    [
        ("Echo", (), grpc.StatusCode.OK),
        ("Thread", (), grpc.StatusCode.OK),
        ("Count", (), grpc.StatusCode.OK),
        ("Refuse", (), grpc.StatusCode.NOT_FOUND),
        ("Missing", (), grpc.StatusCode.UNIMPLEMENTED),
        # Only the server knows the deadline: a client that does may cancel before it.
        ("Wait", (("grpc-timeout", "100m"),), grpc.StatusCode.DEADLINE_EXCEEDED),
    ],
)
async def test_the_end_of_a_call_is_told_once_with_its_code(
    channel: aio.Channel,
    ends: list[EndedCall],
    method: str,
    metadata: tuple[tuple[str, str], ...],
    code: grpc.StatusCode,
) -> None:
    await call(channel, method, *metadata)
    await eventually(lambda: ends)
    # Another one behind it: had the first been told twice, it were there too.
    await call(channel, "Echo")
    await eventually(lambda: len(ends) >= 2)

    first, *rest = ends
    assert (f"/{SERVICE}/{method}", "r-1") == (first.label(), first.request_id())
    assert code.value[0] == first.code
    assert 0 <= first.duration_s < TIMEOUT_S
    assert [f"/{SERVICE}/Echo"] == [each.label() for each in rest]


async def test_a_call_that_its_client_leaves_is_told(
    channel: aio.Channel, ends: list[EndedCall], server: aio.Server
) -> None:
    left = channel.unary_unary(f"/{SERVICE}/Wait")(b"x")
    await eventually(lambda: server.native.stats()["in_flight"] == 1)
    left.cancel()
    await eventually(lambda: ends)
    assert [grpc.StatusCode.CANCELLED.value[0]] == [each.code for each in ends]


async def test_nobody_is_told_any_more_when_that_is_not_wanted(
    channel: aio.Channel, ends: list[EndedCall], server: aio.Server
) -> None:
    await call(channel, "Echo")
    await eventually(lambda: ends)
    server.tell_ends(None)
    await call(channel, "Echo")
    assert 1 == len(ends)


async def test_no_cycle_keeps_a_call_that_has_ended(
    channel: aio.Channel, ends: list[EndedCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Errors hold tracebacks, and these the contexts, with or without a log.
    made: list[weakref.ref[Any]] = []

    class Context(aio.ServicerContext):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(weakref.ref(self))

    for module in (_tasks, _dispatch):
        monkeypatch.setattr(module, "ServicerContext", Context)
    gc.collect()
    gc.disable()
    try:
        for method in ("Echo", "Count", "Thread"):
            await call(channel, method)
        await eventually(lambda: len(ends) == 3)
        await eventually(lambda: not any(each() for each in made))
        assert len(made) == 2
    finally:
        gc.enable()
