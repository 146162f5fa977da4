"""A servicer that tells what it was asked, and one that uses its context in every way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc

import pyserve
from pyserve.request import current_request
from services.echo import echo_pb2, echo_pb2_grpc


@pyserve.deployment
class Teller(echo_pb2_grpc.EchoServicer):
    """Answers with facts about the request; the context is left out where it is not needed."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        current = current_request()
        assert current is not None
        facts = {
            "application": current.application,
            "request_id": current.request_id,
            "model": pyserve.get_multiplexed_model_id(),
            "payload": request.payload.decode(),
        }
        return echo_pb2.EchoReply(payload=json.dumps(facts).encode())

    async def EchoStream(self, request: echo_pb2.StreamRequest) -> AsyncIterator[Any]:
        for number in range(request.messages):
            yield echo_pb2.EchoReply(payload=f"{request.payload.decode()} {number}".encode())

    async def Collect(self, requests: AsyncIterator[Any]) -> echo_pb2.CollectReply:
        sizes = [len(request.payload) async for request in requests]
        return echo_pb2.CollectReply(messages=len(sizes), payload_bytes=sum(sizes))

    async def Converse(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            yield echo_pb2.PerformReply(payload=request.payload[::-1])

    async def Perform(
        self, request: echo_pb2.PerformRequest, grpc_context: grpc.aio.ServicerContext[Any, Any]
    ) -> echo_pb2.PerformReply:
        """Say everything by the context; raise in the end if that was asked for."""
        seen = dict(grpc_context.invocation_metadata() or ())
        grpc_context.set_trailing_metadata(
            (("seen", seen.get("sent", "nothing")), ("peer", grpc_context.peer()))
        )
        if request.status.code:
            grpc_context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
            grpc_context.set_details(request.status.message)
        if request.raise_text:
            raise ValueError(request.raise_text)
        return echo_pb2.PerformReply(payload=request.payload)


app = Teller.bind()
