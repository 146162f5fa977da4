"""Requests that break a rule or a limit: each gets its status, its neighbours notice nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from services.echo import echo_pb2
from tests.mesh.calls.mesh import ANSWER_TIMEOUT_S, EchoMesh, echo_mesh
from tests.mesh.calls.raw import RawClient, frame, raw_client

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ECHO = "/services.echo.Echo/Echo"
CONVERSE = "/services.echo.Echo/Converse"
RECEIVE_BYTES_MAX = 10_000
SEND_BYTES_MAX = 20_000


def echo_request(payload: bytes = b"x") -> bytes:
    return echo_pb2.EchoRequest(payload=payload).SerializeToString()


def perform_request(**fields: object) -> bytes:
    return echo_pb2.PerformRequest(**fields).SerializeToString()  # type: ignore[arg-type]


def trailing(error: grpc.aio.AioRpcError) -> dict[str, str | bytes]:
    return dict(error.trailing_metadata() or ())


@asynccontextmanager
async def neighbour_on(client: RawClient) -> AsyncIterator[None]:
    """Converse on the same connection, before and after what the block does."""
    first, second = (frame(perform_request(payload=payload)) for payload in (b"a", b"b"))
    call = client.start(CONVERSE, first, end=False)
    yield
    client.send(call, second, end=True)
    await call.end()
    assert (0, first + second) == (call.status, call.body)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited() -> AsyncIterator[EchoMesh]:
    async with echo_mesh(
        max_receive_message_bytes=RECEIVE_BYTES_MAX, max_send_message_bytes=SEND_BYTES_MAX
    ) as mesh:
        yield mesh


@pytest.mark.parametrize(
    "path", ["/services.echo.Echo/Nonesuch", "/services.echo.Nonesuch/Echo", "/nonesuch"]
)
async def test_an_unknown_path_is_unimplemented_and_named_by_the_ingress(
    limited: EchoMesh, path: str
) -> None:
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = limited.channel.unary_unary(path)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(b"", timeout=ANSWER_TIMEOUT_S)
    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()
    assert path in (caught.value.details() or "")
    assert "ingress" == trailing(caught.value)["pyserve-answered-by"]


@pytest.mark.parity("S-79")
async def test_a_request_over_the_limit_is_refused_with_limit_size_and_option(
    limited: EchoMesh,
) -> None:
    fits = b"x" * (RECEIVE_BYTES_MAX - 3)  # and three bytes of tag and length
    request = echo_pb2.EchoRequest(payload=fits)
    assert fits == (await limited.stub.Echo(request, timeout=ANSWER_TIMEOUT_S)).payload
    too_large = echo_pb2.EchoRequest(payload=fits + b"x")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await limited.stub.Echo(too_large, timeout=ANSWER_TIMEOUT_S)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
    assert str(RECEIVE_BYTES_MAX) in (caught.value.details() or "")
    assert str(RECEIVE_BYTES_MAX + 1) in (caught.value.details() or "")
    assert "raise max_receive_message_bytes of the deployment" in (caught.value.details() or "")


async def test_a_compressed_request_is_measured_unpacked(limited: EchoMesh) -> None:
    message = echo_request(bytes(RECEIVE_BYTES_MAX))
    packed = frame(message, compressed=True)
    assert len(packed) < RECEIVE_BYTES_MAX
    async with raw_client(limited.address) as client:
        call = await client.start(ECHO, packed, headers=[("grpc-encoding", "gzip")]).end()
    assert grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] == call.status
    assert str(RECEIVE_BYTES_MAX) in call.message


@pytest.mark.parity("S-79")
async def test_a_response_over_the_limit_is_refused_with_limit_size_and_option(
    limited: EchoMesh,
) -> None:
    request = echo_pb2.PerformRequest(response_bytes=SEND_BYTES_MAX)
    size = len(echo_pb2.PerformReply(payload=bytes(SEND_BYTES_MAX)).SerializeToString())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await limited.stub.Perform(request, timeout=ANSWER_TIMEOUT_S)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
    assert str(SEND_BYTES_MAX) in (caught.value.details() or "")
    assert str(size) in (caught.value.details() or "")
    assert "raise max_send_message_bytes of the deployment" in (caught.value.details() or "")


async def test_one_message_over_the_limit_ends_a_stream_after_the_others(
    limited: EchoMesh,
) -> None:
    call = limited.stub.Converse(timeout=ANSWER_TIMEOUT_S)
    for size in (10, 20):
        await call.write(echo_pb2.PerformRequest(payload=bytes(size)))
        assert size == len((await call.read()).payload)
    await call.write(echo_pb2.PerformRequest(payload=bytes(RECEIVE_BYTES_MAX)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert grpc.StatusCode.RESOURCE_EXHAUSTED is caught.value.code()
    await limited.settled()


PING = frame(echo_request())
UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED.value[0]
INTERNAL = grpc.StatusCode.INTERNAL.value[0]


@pytest.mark.parametrize(
    ("messages", "headers", "status", "text"),
    [
        pytest.param([], [], UNIMPLEMENTED, "message", id="no message"),
        pytest.param([PING] * 2, [], UNIMPLEMENTED, "message", id="two messages"),
        pytest.param(
            [PING], [("grpc-encoding", "snappy")], UNIMPLEMENTED, "snappy", id="compression"
        ),
        pytest.param([b"\x02" + PING[1:]], [], INTERNAL, "", id="a flag that is none"),
        pytest.param([PING[:-1]], [], INTERNAL, "", id="a frame cut short"),
        pytest.param([PING[:3]], [], INTERNAL, "", id="a prefix cut short"),
        pytest.param([b"\x01" + PING[1:]], [], INTERNAL, "", id="packed without encoding"),
        pytest.param(
            [b"\x01" + PING[1:]],
            [("grpc-encoding", "gzip")],
            INTERNAL,
            "",
            id="packed in name only",
        ),
        pytest.param([PING], [("grpc-timeout", "soon")], INTERNAL, "timeout", id="timeout"),
        pytest.param(
            [PING], [("grpc-timeout", "123456789S")], INTERNAL, "timeout", id="nine digits"
        ),
    ],
)
async def test_a_malformed_call_fails_alone(
    limited: EchoMesh,
    messages: list[bytes],
    headers: list[tuple[str, str]],
    status: int,
    text: str,
) -> None:
    async with raw_client(limited.address) as client, neighbour_on(client):
        call = await client.start(ECHO, *messages, headers=headers).end()
        assert status == call.status, call.message
        assert text in call.message
    await limited.settled()


async def test_another_content_type_is_415(limited: EchoMesh) -> None:
    async with raw_client(limited.address) as client, neighbour_on(client):
        headers = [("content-type", "application/xml")]
        call = await client.start(ECHO, PING, headers=headers).end()
        assert "415" == call.headers[":status"]
    await limited.settled()
