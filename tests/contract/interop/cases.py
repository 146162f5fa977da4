"""The interoperability cases that need no look at the wire, in the order of their description.

Each has its public name, and takes the client that is to make the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio

from tests.contract.interop import interop_pb2 as pb
from tests.contract.interop.calls import (
    REQUEST_BYTES,
    RESPONSE_BYTES,
    TIMEOUT_S,
    Client,
    converse,
    failure,
    size_of,
    wanted,
    within,
    zeros,
)
from tests.contract.interop.interop_pb2_grpc import UnimplementedServiceStub
from tests.contract.interop.service import INITIAL_KEY, TRAILING_KEY

LARGE_REQUEST_BYTES = 271_828
LARGE_RESPONSE_BYTES = 314_159
_INITIAL_VALUE = "test_initial_metadata_value"
_TRAILING_VALUE = b"\xab\xab\xab"
_METADATA = ((INITIAL_KEY, _INITIAL_VALUE), (TRAILING_KEY, _TRAILING_VALUE))
_BLANKS_AND_UNICODE = (
    "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
)


async def empty_unary(client: Client) -> None:
    """A message of no bytes, both ways."""
    async with client.stub() as stub:
        assert pb.Empty() == await stub.EmptyCall(pb.Empty(), timeout=TIMEOUT_S)


async def large_unary(client: Client) -> None:
    """Messages beyond a window, both ways."""
    async with client.stub() as stub:
        response = await stub.UnaryCall(large_request(), timeout=TIMEOUT_S)
        assert pb.SimpleResponse(payload=zeros(LARGE_RESPONSE_BYTES)) == response


def large_request() -> pb.SimpleRequest:
    """Return the request of the large calls."""
    return pb.SimpleRequest(response_size=LARGE_RESPONSE_BYTES, payload=zeros(LARGE_REQUEST_BYTES))


async def client_streaming(client: Client) -> None:
    """Four messages, one answer, which has their sum."""
    async with client.stub() as stub:
        call = stub.StreamingInputCall(timeout=TIMEOUT_S)
        for size_bytes in REQUEST_BYTES:
            await call.write(pb.StreamingInputCallRequest(payload=zeros(size_bytes)))
        await call.done_writing()
        assert 74_922 == (await call).aggregated_payload_size


async def server_streaming(client: Client) -> None:
    """One request, four answers in their order."""
    async with client.stub() as stub:
        call = stub.StreamingOutputCall(wanted(*RESPONSE_BYTES), timeout=TIMEOUT_S)
        assert list(RESPONSE_BYTES) == [size_of(response) async for response in call]
        assert grpc.StatusCode.OK == await call.code()


async def ping_pong(client: Client) -> None:
    """Strictly in turn, over one call."""
    requests = [
        wanted(response_bytes, payload_bytes=request_bytes)
        for request_bytes, response_bytes in zip(REQUEST_BYTES, RESPONSE_BYTES, strict=True)
    ]
    async with client.stub() as stub:
        call = stub.FullDuplexCall(timeout=TIMEOUT_S)
        responses = await within(converse(call, *requests))
        assert list(RESPONSE_BYTES) == [size_of(response) for response in responses]
        assert grpc.StatusCode.OK == await call.code()


async def empty_stream(client: Client) -> None:
    """Nothing is sent, nothing comes back, and that is fine."""
    async with client.stub() as stub:
        call = stub.FullDuplexCall(timeout=TIMEOUT_S)
        assert [] == await within(converse(call))
        assert grpc.StatusCode.OK == await call.code()


async def custom_metadata(client: Client) -> None:
    """Text comes back before the messages, binary after them."""
    async with client.stub() as stub:
        unary = stub.UnaryCall(large_request(), metadata=_METADATA, timeout=TIMEOUT_S)
        assert LARGE_RESPONSE_BYTES == size_of(await unary)
        await _check_echo(unary)
        duplex = stub.FullDuplexCall(metadata=_METADATA, timeout=TIMEOUT_S)
        await within(
            converse(duplex, wanted(LARGE_RESPONSE_BYTES, payload_bytes=LARGE_REQUEST_BYTES))
        )
        await _check_echo(duplex)


async def _check_echo(call: Any) -> None:
    initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
    assert [_INITIAL_VALUE] == initial.get_all(INITIAL_KEY)
    assert [_TRAILING_VALUE] == trailing.get_all(TRAILING_KEY)


async def status_code_and_message(client: Client) -> None:
    """Status and message arrive exactly as the server sent them, for both kinds of calls."""
    await _check_status(client, "test status message")


async def special_status_message(client: Client) -> None:
    """Text with blanks and characters of all planes arrives unchanged."""
    await _check_status(client, _BLANKS_AND_UNICODE)


async def _check_status(client: Client, text: str) -> None:
    status = pb.EchoStatus(code=2, message=text)
    expected = (grpc.StatusCode.UNKNOWN, text)
    async with client.stub() as stub:
        request = pb.SimpleRequest(response_status=status)
        assert expected == await failure(stub.UnaryCall(request, timeout=TIMEOUT_S))
        duplex = stub.FullDuplexCall(timeout=TIMEOUT_S)
        message = pb.StreamingOutputCallRequest(response_status=status)
        assert expected == await failure(converse(duplex, message))


async def unimplemented_method(client: Client) -> None:
    """A method that the service has by its description only."""
    async with client.stub() as stub:
        code, _ = await failure(stub.UnimplementedCall(pb.Empty(), timeout=TIMEOUT_S))
        assert grpc.StatusCode.UNIMPLEMENTED == code


async def unimplemented_service(client: Client) -> None:
    """A service that nobody has."""
    async with client.channel() as channel:
        stub: Any = UnimplementedServiceStub(channel)
        code, _ = await failure(stub.UnimplementedCall(pb.Empty(), timeout=TIMEOUT_S))
        assert grpc.StatusCode.UNIMPLEMENTED == code


async def cancel_after_begin(client: Client) -> None:
    """Cancelled before a message was sent."""
    async with client.stub() as stub:
        call = stub.StreamingInputCall(timeout=TIMEOUT_S)
        assert call.cancel()
        assert grpc.StatusCode.CANCELLED == await within(call.code())


async def cancel_after_first_response(client: Client) -> None:
    """Cancelled in the middle of a conversation."""
    async with client.stub() as stub:
        call = stub.FullDuplexCall(timeout=TIMEOUT_S)
        await call.write(wanted(RESPONSE_BYTES[0], payload_bytes=REQUEST_BYTES[0]))
        assert RESPONSE_BYTES[0] == size_of(await within(call.read()))
        assert call.cancel()
        assert grpc.StatusCode.CANCELLED == await within(call.code())


async def timeout_on_sleeping_server(client: Client) -> None:
    """A millisecond for a call that the server never ends by itself."""
    async with client.stub() as stub:
        call = stub.FullDuplexCall(timeout=0.001)
        # The call may have ended before; its code says how.
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await call.write(pb.StreamingOutputCallRequest(payload=zeros(REQUEST_BYTES[0])))
        code = await within(call.code())
        assert grpc.StatusCode.DEADLINE_EXCEEDED == code, await call.details()


async def pick_first_unary(client: Client) -> None:
    """All calls of one channel reach the same server, which has one address."""
    async with client.stub() as stub:
        ids = set()
        for _ in range(20):
            request = pb.SimpleRequest(response_size=1, payload=zeros(1), fill_server_id=True)
            ids.add((await stub.UnaryCall(request, timeout=TIMEOUT_S)).server_id)
        assert [32] == [len(each) for each in ids]


CASES = (
    empty_unary,
    large_unary,
    client_streaming,
    server_streaming,
    ping_pong,
    empty_stream,
    custom_metadata,
    status_code_and_message,
    special_status_message,
    unimplemented_method,
    unimplemented_service,
    cancel_after_begin,
    cancel_after_first_response,
    timeout_on_sleeping_server,
    pick_first_unary,
)
