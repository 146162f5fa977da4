"""The test service, on plain grpc.aio interfaces: runs on any server that has them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from tests.contract.interop import interop_pb2 as pb
from tests.contract.interop.interop_pb2_grpc import TestServiceServicer
from tests.contract.interop.wire import WireLog

INITIAL_KEY = "x-grpc-test-echo-initial"
TRAILING_KEY = "x-grpc-test-echo-trailing-bin"
_MICROSECONDS = 1_000_000

Context = grpc.aio.ServicerContext[Any, Any]


class InteropServicer(TestServiceServicer):
    """See ``interop.proto``; ``UnimplementedCall`` is left out on purpose.

    Args:
        log: Where the relay before the server notes which messages came compressed.
    """

    def __init__(self, log: WireLog) -> None:
        self._log = log
        self._id = uuid.uuid4().hex

    async def EmptyCall(self, request: pb.Empty, context: Context) -> pb.Empty:
        await _echo_metadata(context)
        return pb.Empty()

    async def UnaryCall(self, request: pb.SimpleRequest, context: Context) -> pb.SimpleResponse:
        await self._check_compression(request, context)
        if request.HasField("response_compressed"):
            context.set_compression(grpc.Compression.Gzip)
            if not request.response_compressed.value:
                context.disable_next_message_compression()
        await _echo_metadata(context)
        await _end_as_told(request, context)
        response = pb.SimpleResponse(payload=_zeros(request.response_size))
        if request.fill_server_id:
            response.server_id = self._id
        return response

    async def StreamingOutputCall(
        self, request: pb.StreamingOutputCallRequest, context: Context
    ) -> AsyncIterator[pb.StreamingOutputCallResponse]:
        if any(each.HasField("compressed") for each in request.response_parameters):
            context.set_compression(grpc.Compression.Gzip)
        await _echo_metadata(context)
        async for response in _answers(request, context):
            yield response
        await _end_as_told(request, context)

    async def StreamingInputCall(
        self, requests: AsyncIterator[pb.StreamingInputCallRequest], context: Context
    ) -> pb.StreamingInputCallResponse:
        await _echo_metadata(context)
        size_bytes = 0
        async for request in requests:
            await self._check_compression(request, context)
            size_bytes += len(request.payload.body)
        return pb.StreamingInputCallResponse(aggregated_payload_size=size_bytes)

    async def FullDuplexCall(
        self, requests: AsyncIterator[pb.StreamingOutputCallRequest], context: Context
    ) -> AsyncIterator[pb.StreamingOutputCallResponse]:
        await _echo_metadata(context)
        async for request in requests:
            await _end_as_told(request, context)
            async for response in _answers(request, context):
                yield response

    async def _check_compression(
        self, request: pb.SimpleRequest | pb.StreamingInputCallRequest, context: Context
    ) -> None:
        if not request.HasField("expect_compressed"):
            return
        expected = request.expect_compressed.value
        if self._log.was_compressed(request) != expected:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"the message was {'not ' if expected else ''}compressed",
            )


def _zeros(size_bytes: int) -> pb.Payload:
    return pb.Payload(body=bytes(size_bytes))


async def _answers(
    request: pb.StreamingOutputCallRequest, context: Context
) -> AsyncIterator[pb.StreamingOutputCallResponse]:
    for parameters in request.response_parameters:
        await asyncio.sleep(parameters.interval_us / _MICROSECONDS)
        if parameters.HasField("compressed") and not parameters.compressed.value:
            context.disable_next_message_compression()
        yield pb.StreamingOutputCallResponse(payload=_zeros(parameters.size))


async def _echo_metadata(context: Context) -> None:
    """Send back the two keys of the case custom_metadata, if they came."""
    sent = dict(context.invocation_metadata() or ())
    if TRAILING_KEY in sent:
        context.set_trailing_metadata(((TRAILING_KEY, sent[TRAILING_KEY]),))
    initial = ((INITIAL_KEY, sent[INITIAL_KEY]),) if INITIAL_KEY in sent else ()
    await context.send_initial_metadata(initial)


async def _end_as_told(
    request: pb.SimpleRequest | pb.StreamingOutputCallRequest, context: Context
) -> None:
    status = request.response_status
    if status.code:
        (code,) = (each for each in grpc.StatusCode if each.value[0] == status.code)
        await context.abort(code, status.message)
