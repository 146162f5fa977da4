"""The code of a failure arrives at a client of grpcio with its default limits of metadata.

Above 8 KiB such a client replaces a status by RESOURCE_EXHAUSTED, by chance up to 16 KiB.
"""

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import GRPCIO, PYSERVE, Network, failure, unary

_CALLS = 40
_RICH = "grpc-status-details-bin"
_ABORTED = grpc.StatusCode.ABORTED


def _status(how: str, size: int) -> tuple[str, tuple[tuple[str, str | bytes], ...]]:
    """Return text and metadata of about ``size`` bytes before they are encoded."""
    match how:
        case "text":
            return "t" * size, (("retry-in", "5"),)
        case "foreign":
            return "ж" * (size // 2), (("retry-in", "5"),)
        case "rich":
            return "bad input", ((_RICH, b"\x01" * size),)
        case "both":  # What grpc_status.rpc_status makes: the text twice.
            return "t" * (size // 2), ((_RICH, b"t" * (size // 2)),)
        case "pairs":
            return "t" * 1000, tuple((f"item-{at}", "m" * 100) for at in range(size // 100))
        case _:
            return "why", (("report", "m" * size),)


@pytest.mark.parametrize("how", ["text", "foreign", "rich", "both", "pairs", "custom"])
@pytest.mark.parametrize("kilobytes", [4, 8, 12, 20, 40])
async def test_the_code_arrives(how: str, kilobytes: int) -> None:
    """The sizes are those between grpcio's soft limit and the limit of a block, and around."""
    text, metadata = _status(how, kilobytes * 1000)

    async def fail(request: bytes, context: Any) -> bytes:
        if request == b"abort":
            await context.abort(_ABORTED, text, metadata)
        context.set_code(_ABORTED)
        context.set_details(text)
        context.set_trailing_metadata(metadata)
        return b""

    network = Network(PYSERVE, GRPCIO)
    try:
        stub = await network.serve({"Call": unary(fail)})
        calls = [b"abort", b"set"] * (_CALLS // 2)
        errors = await asyncio.gather(*(failure(stub.unary()(each)) for each in calls))
        codes = Counter(error.code() for error in errors)
        assert {_ABORTED: _CALLS} == codes, errors[0].details()
        for error in errors:
            _check_text(text, error.details() or "")
    finally:
        await network.close()


def _check_text(text: str, arrived: str) -> None:
    kept, mark, end = arrived.partition(" ... (cut: ")
    assert text.startswith(kept)
    assert bool(mark) == (kept != text)
    if mark:
        assert f"{len(text.encode())} bytes)" == end
        assert len(kept) > 30


async def test_what_does_not_fit_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The line names method, sizes, the limit of clients and what was left out."""

    async def fail(_request: bytes, context: Any) -> None:
        metadata = ((_RICH, bytes(9000)), ("retry-in", "5"))
        await context.abort(_ABORTED, "why", metadata)

    network = Network(PYSERVE, GRPCIO)
    try:
        stub = await network.serve({"Call": unary(fail)})
        for _ in range(3):
            trailers = (await failure(stub.unary()(b""))).trailing_metadata()
            assert trailers is not None
            assert "5" == trailers["retry-in"]
            assert _RICH not in trailers
    finally:
        await network.close()
    (told,) = [line for line in caplog.messages if "trailing metadata" in line]
    assert told == (
        "/contract.Service/Call fails with 12096 bytes of trailing metadata, too much for clients, "
        f"which take 8192 bytes with text and headers (grpc.max_metadata_size); left out: {_RICH}"
    )


@pytest.mark.parametrize(
    "option", [("grpc.max_metadata_size", 40_000), ("grpc.absolute_max_metadata_size", 50_000)]
)
async def test_clients_that_take_more_get_more(option: tuple[str, int]) -> None:
    """A server says so by the option that its clients set for themselves."""
    details = bytes(range(256)) * 100

    async def fail(_request: bytes, context: Any) -> None:
        await context.abort(_ABORTED, "t" * 3000, ((_RICH, details),))

    network = Network(PYSERVE, GRPCIO)
    try:
        _, address = await network.start({"Call": unary(fail)}, options=[option])
        channel = network.channel(address, options=[option])
        call = channel.unary_unary("/contract.Service/Call", _registered_method=True)
        for _ in range(_CALLS):
            error = await failure(call(b""))
            assert (_ABORTED, "t" * 3000) == (error.code(), error.details())
            assert dict(error.trailing_metadata() or ())[_RICH] == details
    finally:
        await network.close()
