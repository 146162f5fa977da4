"""Compression through the mesh: per message, and never unpacked between client and handler."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.echo import echo_pb2
from tests.contract.foreign.compressing import COMPRESS_KEY
from tests.mesh.calls.mesh import EchoMesh, echo_mesh
from tests.mesh.calls.raw import frame, raw_client

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PAYLOAD = b"the same again " * 1000
REQUEST = echo_pb2.PerformRequest(payload=PAYLOAD, describe=True).SerializeToString()
PREFIX_BYTES = 5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncIterator[EchoMesh]:
    async with echo_mesh("tests.mesh.calls.apps:compressing") as made:
        yield made


async def test_both_ways_compressed_as_the_headers_say(mesh: EchoMesh) -> None:
    headers = [
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "identity,gzip"),
        (COMPRESS_KEY, "yes"),
    ]
    async with raw_client(mesh.address) as client:
        call = client.start(
            "/services.echo.Echo/Perform", frame(REQUEST, compressed=True), headers=headers
        )
        await call.end()
    assert 0 == call.status
    assert "gzip" == call.headers["grpc-encoding"]
    assert 1 == call.body[0]
    assert len(call.body) < len(PAYLOAD) / 10
    reply = echo_pb2.PerformReply.FromString(gzip.decompress(call.body[PREFIX_BYTES:]))
    assert PAYLOAD == reply.payload


async def test_a_compressed_request_may_have_a_plain_answer(mesh: EchoMesh) -> None:
    async with raw_client(mesh.address) as client:
        call = client.start(
            "/services.echo.Echo/Perform",
            frame(REQUEST, compressed=True),
            headers=[("grpc-encoding", "gzip")],
        )
        await call.end()
    assert 0 == call.status
    assert call.headers.get("grpc-encoding", "identity") == "identity"
    assert PAYLOAD == echo_pb2.PerformReply.FromString(call.body[PREFIX_BYTES:]).payload


async def test_each_message_of_a_stream_says_whether_it_is_compressed(mesh: EchoMesh) -> None:
    messages = [frame(REQUEST, compressed=packed) for packed in (True, False, True)]
    async with raw_client(mesh.address) as client:
        call = client.start(
            "/services.echo.Echo/Collect", *messages, headers=[("grpc-encoding", "gzip")]
        )
        await call.end()
    assert 0 == call.status
    reply = echo_pb2.CollectReply.FromString(call.body[PREFIX_BYTES:])
    assert (3, 3 * len(PAYLOAD)) == (reply.messages, reply.payload_bytes)
