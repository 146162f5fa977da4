"""Plain methods through the ingress, for clients that know nothing of handles."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pyserve import _router
from pyserve.serializers import codec, join
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh
from tests.support.waiting import eventually
from tests.unit.replica.native_client import Client, Outcome

pytestmark = pytest.mark.slow

OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 3, 8, 12, 13


class Stranger(Client):
    """A native client of the ingress, whose content-type can be chosen."""

    def __init__(self, address: str) -> None:
        self._channel = _router.Channel(address)
        self._prefix = "/default."


@pytest.fixture
def stranger(mesh: RunningMesh) -> Stranger:
    return Stranger(mesh.address)


async def call(stranger: Stranger, path: str, body: bytes, subtype: str, **options: Any) -> Outcome:
    try:
        return await stranger.unary(path, body, subtype=subtype, framed=False, **options)
    finally:
        stranger.close()


async def test_json_is_served_through_the_ingress(stranger: Stranger) -> None:
    outcome = await call(stranger, "Echo/plain", b'[[1],{"second":3}]', "json")
    assert (OK, b"[1,3]") == (outcome.code, outcome.message)


async def test_pickle_is_refused_by_the_ingress(stranger: Stranger, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    body = pickle.dumps([[Hostile()], {}])
    outcome = await call(stranger, "Echo/plain", body, "pickle")
    assert UNIMPLEMENTED == outcome.code
    assert not (tmp_path / "ran").exists()


async def test_a_stranger_cannot_claim_to_be_a_handle(stranger: Stranger) -> None:
    try:
        outcome = await stranger.unary(
            "Echo/plain", b"\x00" + b"[[1],{}]", subtype="json", framed=True
        )
    finally:
        stranger.close()
    # The byte of the frame is read as a part of the body, which is then not valid JSON.
    assert INVALID_ARGUMENT == outcome.code


async def test_texts_of_exceptions_stay_in_the_mesh(stranger: Stranger) -> None:
    outcome = await call(stranger, "Echo/fail", b"[[],{}]", "json")
    assert INTERNAL == outcome.code
    assert "a secret" not in outcome.details
    assert not [key for key in outcome.trailers if "error" in key]


@pytest.mark.parity("S-79")
async def test_the_limit_of_messages_holds_for_strangers(stranger: Stranger) -> None:
    body = join(codec("msgpack").encode_call((bytes(5 * 1024 * 1024),), {}))
    outcome = await call(stranger, "Store/size", body, "msgpack")
    assert RESOURCE_EXHAUSTED == outcome.code


async def test_the_end_of_a_batch_can_be_said_in_the_metadata(stranger: Stranger) -> None:
    """One call of a batch of two, which would wait for 30 s."""
    outcome = await call(
        stranger,
        "halve/__call__",
        b"[[3],{}]",
        "json",
        metadata=(("pyserve-batch-end", "1"),),
    )
    assert (OK, b"1.5") == (outcome.code, outcome.message)


@pytest.fixture
async def channel(mesh: RunningMesh) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(mesh.address) as channel:
        yield channel


@pytest.mark.parity("S-75")
async def test_grpcio_calls_a_plain_method_with_protobuf(channel: grpc.aio.Channel) -> None:
    proto = codec("proto")
    plain: Any = channel.unary_unary("/default.shout/__call__")
    body = join(proto.encode_call(("abc",), {}))
    assert "ABC" == proto.decode(await plain(body, timeout=30))
    stream: Any = channel.unary_stream("/default.spell/__call__")
    body = join(proto.encode_call(("ab",), {}))
    assert ["a", "b"] == [proto.decode(each) async for each in stream(body, timeout=30)]


async def test_calls_of_a_servicer_inherit_its_callers_deadline(
    channel: grpc.aio.Channel,
) -> None:
    stub = echo_pb2_grpc.EchoStub(channel)
    reply = await stub.Echo(echo_pb2.EchoRequest(), timeout=60.0)
    # grpcio rounds what it sends up, to a tenth of a second here.
    assert 30.0 < float(reply.payload) <= 60.2
    reply = await stub.Echo(echo_pb2.EchoRequest())
    assert b"None" == reply.payload


async def test_calls_of_a_servicer_are_cancelled_with_it(
    channel: grpc.aio.Channel, tmp_path: Path
) -> None:
    path = tmp_path / "cancelled"
    stub = echo_pb2_grpc.EchoStub(channel)
    call = stub.Perform(echo_pb2.PerformRequest(payload=str(path).encode()))
    await eventually(path.with_suffix(".begun").exists)
    call.cancel()
    await eventually(path.exists)
