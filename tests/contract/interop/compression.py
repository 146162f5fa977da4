"""The four cases about compression, with a look at every message on the wire."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import grpc

from tests.contract.interop import interop_pb2 as pb
from tests.contract.interop.calls import (
    REQUEST_BYTES,
    RESPONSE_BYTES,
    TIMEOUT_S,
    Client,
    failure,
    size_of,
    within,
    zeros,
)
from tests.contract.interop.cases import LARGE_REQUEST_BYTES, LARGE_RESPONSE_BYTES
from tests.contract.interop.wire import Wire

_GZIP = grpc.Compression.Gzip
_YES, _NO = pb.BoolValue(value=True), pb.BoolValue(value=False)


async def client_compressed_unary(client: Client, wire: Wire) -> None:
    """The server notices which request is compressed; a wrong claim is INVALID_ARGUMENT."""
    async with client.stub() as stub:
        code, _ = await failure(stub.UnaryCall(_unary(expect=_YES), timeout=TIMEOUT_S))
        assert grpc.StatusCode.INVALID_ARGUMENT == code
        response = await stub.UnaryCall(_unary(expect=_YES), compression=_GZIP, timeout=TIMEOUT_S)
        assert LARGE_RESPONSE_BYTES == size_of(response)
        response = await stub.UnaryCall(_unary(expect=_NO), timeout=TIMEOUT_S)
        assert LARGE_RESPONSE_BYTES == size_of(response)
    assert [False, True, False] == wire.requests


def _unary(*, expect: pb.BoolValue) -> pb.SimpleRequest:
    return pb.SimpleRequest(
        expect_compressed=expect,
        response_size=LARGE_RESPONSE_BYTES,
        payload=zeros(LARGE_REQUEST_BYTES),
    )


async def server_compressed_unary(client: Client, wire: Wire) -> None:
    """The answer is compressed as the request asks."""
    async with client.stub() as stub:
        for compressed in (_YES, _NO):
            request = pb.SimpleRequest(
                response_compressed=compressed,
                response_size=LARGE_RESPONSE_BYTES,
                payload=zeros(LARGE_REQUEST_BYTES),
            )
            response = await stub.UnaryCall(request, timeout=TIMEOUT_S)
            assert pb.SimpleResponse(payload=zeros(LARGE_RESPONSE_BYTES)) == response
    assert [True, False] == wire.responses


async def client_compressed_streaming(client: Client, wire: Wire) -> None:
    """One stream with a compressed and a plain message.

    grpc.aio's calls have no switch for single messages. But a message that compression would
    not make smaller is sent plain, so the second one holds noise.
    """
    first = _input(zeros(REQUEST_BYTES[0]), expect=_YES)
    second = _input(_noise(REQUEST_BYTES[3]), expect=_NO)
    async with client.stub() as stub:
        probe = stub.StreamingInputCall(timeout=TIMEOUT_S)
        await probe.write(first)
        code, _ = await failure(probe)
        assert grpc.StatusCode.INVALID_ARGUMENT == code
        call = stub.StreamingInputCall(compression=_GZIP, timeout=TIMEOUT_S)
        await call.write(first)
        await call.write(second)
        await call.done_writing()
        assert 73_086 == (await within(call)).aggregated_payload_size
    assert [False, True, False] == wire.requests


def _input(payload: pb.Payload, *, expect: pb.BoolValue) -> pb.StreamingInputCallRequest:
    return pb.StreamingInputCallRequest(payload=payload, expect_compressed=expect)


def _noise(size_bytes: int) -> pb.Payload:
    return pb.Payload(body=random.Random(0).randbytes(size_bytes))


async def server_compressed_streaming(client: Client, wire: Wire) -> None:
    """One stream with a compressed and a plain answer."""
    sizes = (RESPONSE_BYTES[0], 92_653)
    request = pb.StreamingOutputCallRequest(
        response_parameters=[
            pb.ResponseParameters(size=sizes[0], compressed=_YES),
            pb.ResponseParameters(size=sizes[1], compressed=_NO),
        ]
    )
    async with client.stub() as stub:
        call = stub.StreamingOutputCall(request, timeout=TIMEOUT_S)
        assert list(sizes) == [size_of(response) async for response in call]
    assert [True, False] == wire.responses


Case = Callable[[Client, Wire], Awaitable[None]]
COMPRESSION_CASES: tuple[Case, ...] = (
    client_compressed_unary,
    server_compressed_unary,
    client_compressed_streaming,
    server_compressed_streaming,
)
