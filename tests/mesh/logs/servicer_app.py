"""A service of a .proto whose methods log, one of each kind of code that runs them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

LOGGER = logging.getLogger("echo")


@pyserve.deployment
class Echo(echo_pb2_grpc.EchoServicer):
    async def Echo(self, request: echo_pb2.EchoRequest, _context: Any) -> echo_pb2.EchoReply:
        LOGGER.warning("in a coroutine")
        if request.payload == b"fail":
            raise LookupError("nothing there")
        return echo_pb2.EchoReply()

    def EchoSync(self, _request: echo_pb2.EchoRequest, _context: Any) -> echo_pb2.EchoReply:
        LOGGER.warning("in a thread")
        return echo_pb2.EchoReply()

    async def EchoStream(
        self, _request: echo_pb2.StreamRequest, _context: Any
    ) -> AsyncIterator[echo_pb2.EchoReply]:
        LOGGER.warning("in a stream")
        yield echo_pb2.EchoReply()

    def PerformStreamSync(
        self, _request: echo_pb2.PerformStreamRequest, _context: Any
    ) -> Iterator[echo_pb2.PerformReply]:
        LOGGER.warning("in a generator")
        yield echo_pb2.PerformReply()

    async def Collect(
        self, request_iterator: AsyncIterator[echo_pb2.PerformRequest], _context: Any
    ) -> echo_pb2.CollectReply:
        async for _ in request_iterator:
            LOGGER.warning("behind a message")
        return echo_pb2.CollectReply()

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0)
    async def EchoSuspend(self, requests: list[echo_pb2.EchoRequest]) -> list[echo_pb2.EchoReply]:
        LOGGER.warning("in a batch")
        return [echo_pb2.EchoReply() for _ in requests]


app = Echo.bind()
