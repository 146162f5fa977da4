"""Applications are told apart, all kinds pass, and a context does what gRPC's does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.servicers.apps import app

pytestmark = pytest.mark.slow

TIMEOUT_S = 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two applications that serve the same service."""
    pyserve.start(address="127.0.0.1:0")
    try:
        pyserve.run(app, name="first", route_prefix=None)
        pyserve.run(app, name="second", route_prefix=None)
        yield pyserve.status().addresses[0]
    finally:
        pyserve.shutdown()


@pytest.fixture
async def stub(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield echo_pb2_grpc.EchoStub(channel)


FIRST = ("application", "first")


async def _facts(stub: Any, *metadata: tuple[str, str]) -> dict[str, str]:
    request = echo_pb2.EchoRequest(payload=b"hello")
    reply = await stub.Echo(request, metadata=metadata, timeout=TIMEOUT_S)
    facts: dict[str, str] = json.loads(reply.payload)
    return facts


@pytest.mark.parity("G-41")
async def test_the_metadata_picks_the_application(stub: Any):
    for name in ("first", "second", "first"):
        facts = await _facts(stub, ("application", name))
        assert (name, "hello") == (facts["application"], facts["payload"])


@pytest.mark.parity("G-41")
async def test_without_it_the_client_is_told_what_to_name(stub: Any):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _facts(stub)
    assert grpc.StatusCode.INVALID_ARGUMENT is caught.value.code()
    for word in ("first", "second", "application"):
        assert word in (caught.value.details() or "")


@pytest.mark.parity("G-41")
async def test_an_application_that_does_not_serve_it_is_named(stub: Any):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _facts(stub, ("application", "third"))
    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()
    assert "third" in (caught.value.details() or "")


@pytest.mark.parity("G-41")
async def test_request_and_model_are_named_by_metadata(stub: Any):
    facts = await _facts(stub, FIRST, ("x-request-id", "mine"), ("multiplexed_model_id", "large"))
    assert ("mine", "large") == (facts["request_id"], facts["model"])


@pytest.mark.parity("G-42")
async def test_all_four_kinds_pass(stub: Any):
    options = {"metadata": (FIRST,), "timeout": TIMEOUT_S}
    assert "hello" == (await _facts(stub, FIRST))["payload"]
    stream = stub.EchoStream(echo_pb2.StreamRequest(payload=b"n", messages=3), **options)
    assert [b"n 0", b"n 1", b"n 2"] == [reply.payload async for reply in stream]
    requests = [echo_pb2.PerformRequest(payload=each) for each in (b"ab", b"cde")]
    collected = await stub.Collect(iter(requests), **options)
    assert (2, 5) == (collected.messages, collected.payload_bytes)
    talk = stub.Converse(**options)
    for request, answer in zip(requests, (b"ba", b"edc"), strict=True):
        await talk.write(request)
        assert answer == (await talk.read()).payload
    await talk.done_writing()
    assert grpc.aio.EOF == await talk.read()


@pytest.mark.parity("G-43")
async def test_the_context_tells_of_the_client(stub: Any):
    call = stub.Perform(
        echo_pb2.PerformRequest(payload=b"x"), metadata=(FIRST, ("sent", "this")), timeout=TIMEOUT_S
    )
    assert b"x" == (await call).payload
    trailing = dict(await call.trailing_metadata())
    assert "this" == trailing["seen"]
    assert trailing["peer"].startswith(("ipv4:127.0.0.1:", "unix:"))


@pytest.mark.parity("G-43")
@pytest.mark.parametrize("raise_text", ["", "a secret"], ids=["returned", "raised"])
async def test_code_details_and_trailers_of_the_context_stand(stub: Any, raise_text: str):
    """Also where the handler raises afterwards, and then without the exception's text."""
    status = echo_pb2.Status(code=9, message="not yet")
    request = echo_pb2.PerformRequest(status=status, raise_text=raise_text)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Perform(request, metadata=(FIRST,), timeout=TIMEOUT_S)
    error = caught.value
    assert (grpc.StatusCode.FAILED_PRECONDITION, "not yet") == (error.code(), error.details())
    assert "nothing" == dict(error.trailing_metadata())["seen"]


# The last one: it takes an application away.
@pytest.mark.parity("G-41")
async def test_a_single_application_needs_no_name(stub: Any):
    pyserve.delete("second")
    assert "first" == (await _facts(stub))["application"]
