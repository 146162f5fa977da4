"""Retries, time limits and waiting that a channel's service config asks for."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

import pyserve.aio
from tests.contract.aio.sides import (
    PYSERVE,
    SERVICE,
    Network,
    Side,
    Stub,
    collect,
    failure,
    responses,
    unary,
    within,
)

RETRY = {
    "maxAttempts": 4,
    "initialBackoff": "0.01s",
    "maxBackoff": "0.02s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}


def options(method: dict[str, Any], **config: Any) -> list[tuple[str, Any]]:
    """Return the channel option for ``method`` as the config of the service."""
    config["methodConfig"] = [{"name": [{"service": SERVICE}], **method}]
    return [("grpc.service_config", json.dumps(config))]


class Flaky:
    """Fails the first calls, and notes what each says of those before it."""

    def __init__(self, failures: int, code: grpc.StatusCode, *pairs: tuple[str, str]) -> None:
        self.before: list[object] = []
        self._failures = failures
        self._code = code
        self._pairs = pairs

    async def unary(self, request: bytes, context: Any) -> bytes:
        said = dict(context.invocation_metadata())
        self.before.append(said.get("grpc-previous-rpc-attempts"))
        if len(self.before) <= self._failures:
            await context.abort(self._code, "not yet", self._pairs)
        return request

    async def stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield await self.unary(request, context)


async def serve(network: Network, flaky: Flaky, client_options: Any) -> Stub:
    methods = {"Call": unary(flaky.unary), "Stream": responses(flaky.stream)}
    _, address = await network.start(methods)
    return Stub(network.channel(address, options=client_options))


@pytest.mark.parametrize("is_stream", [False, True])
async def test_failures_with_the_named_codes_are_repeated(
    network: Network, is_stream: bool
) -> None:
    flaky = Flaky(2, grpc.StatusCode.UNAVAILABLE)
    stub = await serve(network, flaky, options({"retryPolicy": RETRY}))
    if is_stream:
        assert [b"x"] == await within(collect(stub.responses("Stream")(b"x")))
    else:
        assert b"x" == await within(stub.unary()(b"x"))
    assert [None, "1", "2"] == flaky.before


@pytest.mark.parametrize(
    ("failures", "code", "pairs", "extra", "attempts"),
    [
        (9, grpc.StatusCode.UNAVAILABLE, (), [], 4),
        (9, grpc.StatusCode.ABORTED, (), [], 1),
        (9, grpc.StatusCode.UNAVAILABLE, (("grpc-retry-pushback-ms", "-1"),), [], 1),
        (9, grpc.StatusCode.UNAVAILABLE, (("grpc-retry-pushback-ms", "1"),), [], 4),
        (9, grpc.StatusCode.UNAVAILABLE, (), [("grpc.enable_retries", 0)], 1),
    ],
    ids=["attempts", "another code", "told not to", "told when", "switched off"],
)
async def test_the_last_failure_is_passed_on(
    network: Network, failures: int, code: Any, pairs: Any, extra: Any, attempts: int
) -> None:
    flaky = Flaky(failures, code, *pairs)
    stub = await serve(network, flaky, [*options({"retryPolicy": RETRY}), *extra])
    error = await failure(stub.unary()(b"x"))
    assert (code, "not yet") == (error.code(), error.details())
    assert attempts == len(flaky.before)


async def test_many_failures_stop_the_retries(network: Network) -> None:
    flaky = Flaky(99, grpc.StatusCode.UNAVAILABLE)
    throttling = {"maxTokens": 4, "tokenRatio": 0.1}
    config = options({"retryPolicy": RETRY}, retryThrottling=throttling)
    stub = await serve(network, flaky, config)
    for _ in range(3):
        await failure(stub.unary()(b"x"))
    # Two failures take half of the tokens.
    assert [None, "1", None, None] == flaky.before


async def test_an_answer_that_has_begun_is_not_repeated(network: Network) -> None:
    calls = 0

    async def break_off(_request: bytes, context: Any) -> AsyncIterator[bytes]:
        nonlocal calls
        calls += 1
        yield b"first"
        await context.abort(grpc.StatusCode.UNAVAILABLE, "broken")

    _, address = await network.start({"Call": responses(break_off)})
    channel = network.channel(address, options=options({"retryPolicy": RETRY}))
    error = await failure(Stub(channel).responses()(b""))
    assert (grpc.StatusCode.UNAVAILABLE, 1) == (error.code(), calls)


async def test_a_cancelled_call_is_not_repeated(network: Network) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def wait(_request: bytes, _context: Any) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    _, address = await network.start({"Call": unary(wait)})
    channel = network.channel(address, options=options({"retryPolicy": RETRY}))
    call = Stub(channel).unary()(b"")
    await within(started.wait())
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(call)
    await within(ended.wait())


async def test_the_configs_time_limit_ends_a_call(network: Network) -> None:
    async def wait(_request: bytes, _context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    _, address = await network.start({"Call": unary(wait)})
    stub = Stub(network.channel(address, options=options({"timeout": "0.2s"})))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is (await failure(stub.unary()(b""))).code()


async def test_calls_wait_for_a_server_if_the_config_says_so(network: Network) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        stub = Stub(network.channel(address, options=options({"waitForReady": True})))
        error = await failure(stub.unary()(b"", timeout=0.3))
    assert grpc.StatusCode.DEADLINE_EXCEEDED is error.code()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[]", "must be an object"),
        ('{"methodConfig": [{"name": [{}], "timeout": 5}]}', "timeout must be a duration"),
        ('{"methodConfig": [{"name": [{}], "retryPolicy": {}}]}', "maxAttempts must be 2"),
        ('{"methodConfig": [{"name": [{}, {}]}]}', "two methodConfig entries"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"grpc\.service_config.*{said}"):
        pyserve.aio.insecure_channel("localhost:1", options=[("grpc.service_config", text)])


async def test_the_most_specific_entry_counts(server_side: Side) -> None:
    """The client of grpcio does not send the limit to the server."""
    network = Network(server_side, PYSERVE)

    async def limit(_request: bytes, context: Any) -> bytes:
        return str(round(context.time_remaining())).encode()

    config = {
        "methodConfig": [
            {"name": [{}], "timeout": "300s"},
            {"name": [{"service": SERVICE}], "timeout": "200s"},
            {"name": [{"service": SERVICE, "method": "Call"}], "timeout": "100s"},
        ]
    }
    _, address = await network.start({"Call": unary(limit), "Other": unary(limit)})
    said = [("grpc.service_config", json.dumps(config))]
    stub = Stub(network.channel(address, options=said))
    assert b"100" == await within(stub.unary()(b""))
    assert b"200" == await within(stub.unary("Other")(b""))
    assert b"50" == await within(stub.unary()(b"", timeout=50))
    await network.close()
