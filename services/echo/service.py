"""The service. The Echo methods are as small as handlers get; the Perform methods do as told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc, forking, telling
from services.echo.calls import CallCounters

Context = grpc.aio.ServicerContext[object, object]


@pyserve.deployment
class Echo(echo_pb2_grpc.EchoServicer):
    """See ``echo.proto``, where each method is described."""

    def __init__(self) -> None:
        self._calls = CallCounters()

    async def Echo(self, request: echo_pb2.EchoRequest, context: Context) -> echo_pb2.EchoReply:  # noqa: ARG002
        return echo_pb2.EchoReply(payload=request.payload)

    async def EchoSuspend(
        self,
        request: echo_pb2.EchoRequest,
        context: Context,  # noqa: ARG002
    ) -> echo_pb2.EchoReply:
        await asyncio.sleep(0)
        return echo_pb2.EchoReply(payload=request.payload)

    def EchoSync(
        self,
        request: echo_pb2.EchoRequest,
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=request.payload)

    async def EchoStream(
        self,
        request: echo_pb2.StreamRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[echo_pb2.EchoReply]:
        for _ in range(request.messages):
            yield echo_pb2.EchoReply(payload=request.payload)

    async def Perform(
        self, request: echo_pb2.PerformRequest, context: Context
    ) -> echo_pb2.PerformReply:
        with self._calls.counted():
            await _open(context)
            await asyncio.sleep(request.delay_s)
            await _refuse_if_told(request, context)
            return telling.reply(request, context)

    def PerformSync(
        self, request: echo_pb2.PerformRequest, context: grpc.ServicerContext
    ) -> echo_pb2.PerformReply:
        with self._calls.counted():
            _open_sync(context)
            time.sleep(request.delay_s)
            _refuse_if_told_sync(request, context)
            return telling.reply(request, context)

    async def PerformStream(
        self, request: echo_pb2.PerformStreamRequest, context: Context
    ) -> AsyncIterator[echo_pb2.PerformReply]:
        with self._calls.counted():
            await _open(context)
            sound = _without_wrong_type(request.each)
            for _ in range(request.messages):
                await asyncio.sleep(request.each.delay_s)
                yield telling.reply(sound, context)
            await _refuse_if_told(request.each, context)
            if request.each.return_wrong_type:
                yield telling.reply(request.each, context)

    def PerformStreamSync(
        self, request: echo_pb2.PerformStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[echo_pb2.PerformReply]:
        with self._calls.counted():
            _open_sync(context)
            sound = _without_wrong_type(request.each)
            for _ in range(request.messages):
                time.sleep(request.each.delay_s)
                yield telling.reply(sound, context)
            _refuse_if_told_sync(request.each, context)
            if request.each.return_wrong_type:
                yield telling.reply(request.each, context)

    async def Collect(
        self, requests: AsyncIterator[echo_pb2.PerformRequest], context: Context
    ) -> echo_pb2.CollectReply:
        with self._calls.counted():
            await _open(context)
            reply = echo_pb2.CollectReply()
            async for request in requests:
                reply.messages += 1
                reply.payload_bytes += len(request.payload)
                await asyncio.sleep(request.delay_s)
                await _refuse_if_told(request, context)
            return reply

    async def Converse(
        self, requests: AsyncIterator[echo_pb2.PerformRequest], context: Context
    ) -> AsyncIterator[echo_pb2.PerformReply]:
        with self._calls.counted():
            await _open(context)
            async for request in requests:
                await asyncio.sleep(request.delay_s)
                await _refuse_if_told(request, context)
                yield telling.reply(request, context)

    async def Count(self, request: echo_pb2.CountRequest, context: Context) -> echo_pb2.CountReply:  # noqa: ARG002
        return echo_pb2.CountReply(
            started=self._calls.started,
            succeeded=self._calls.succeeded,
            failed=self._calls.failed,
            cancelled=self._calls.cancelled,
            replica_id=telling.replica_id(),
        )

    def Fork(
        self,
        request: echo_pb2.ForkRequest,  # noqa: ARG002
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> echo_pb2.ForkReply:
        return forking.fork_and_probe()


async def _open(context: Context) -> None:
    """Send back what the call wants as metadata."""
    metadata = telling.invocation_metadata(context)
    if initial := telling.with_prefix(metadata, telling.INITIAL_PREFIX):
        await context.send_initial_metadata(initial)
    if trailing := telling.with_prefix(metadata, telling.TRAILING_PREFIX):
        context.set_trailing_metadata(trailing)


def _open_sync(context: grpc.ServicerContext) -> None:
    metadata = telling.invocation_metadata(context)
    if initial := telling.with_prefix(metadata, telling.INITIAL_PREFIX):
        context.send_initial_metadata(initial)
    if trailing := telling.with_prefix(metadata, telling.TRAILING_PREFIX):
        context.set_trailing_metadata(trailing)


async def _refuse_if_told(request: echo_pb2.PerformRequest, context: Context) -> None:
    refusal = telling.refusal(request, telling.invocation_metadata(context))
    if refusal is not None:
        await context.abort(refusal.code, refusal.details, refusal.trailing_metadata)


def _refuse_if_told_sync(request: echo_pb2.PerformRequest, context: grpc.ServicerContext) -> None:
    refusal = telling.refusal(request, telling.invocation_metadata(context))
    if refusal is not None:
        context.set_trailing_metadata(refusal.trailing_metadata)
        context.abort(refusal.code, refusal.details)


def _without_wrong_type(request: echo_pb2.PerformRequest) -> echo_pb2.PerformRequest:
    sound = echo_pb2.PerformRequest()
    sound.CopyFrom(request)
    sound.return_wrong_type = False
    return sound


# mypy does not look at what class decorators return.
app = Echo.bind()  # type: ignore[attr-defined]
