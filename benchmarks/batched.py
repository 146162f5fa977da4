"""services/echo's Echo in batches, with a step of 10 ms: our decorator, and a batcher by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

SIZE_MAX = 32
WINDOW_S = 0.005
STEP_S = 0.010
# Timers of uvloop count whole milliseconds, from the begin of the turn: one may come so late.
_ROUNDING_S = 0.001


async def step(requests: Sequence[echo_pb2.EchoRequest]) -> list[echo_pb2.EchoReply]:
    """Take ``STEP_S``, never less, without CPU time; the loop is free for most of it."""
    end = time.monotonic() + STEP_S
    await asyncio.sleep(STEP_S - _ROUNDING_S)
    time.sleep(max(0.0, end - time.monotonic()))  # noqa: ASYNC251  # to the microsecond
    return [echo_pb2.EchoReply(payload=request.payload) for request in requests]


@pyserve.deployment(max_ongoing_requests=1024)
class Batched(echo_pb2_grpc.EchoServicer):
    """Ours."""

    @pyserve.batch(max_batch_size=SIZE_MAX, batch_wait_timeout_s=WINDOW_S)
    async def Echo(self, requests: list[echo_pb2.EchoRequest]) -> list[echo_pb2.EchoReply]:
        return await step(requests)


_Waiting = tuple[echo_pb2.EchoRequest, "asyncio.Future[echo_pb2.EchoReply]"]


class Plain(echo_pb2_grpc.EchoServicer):
    """What people write on grpc.aio: a queue, and one task that empties it. Use it on its loop."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._task = asyncio.create_task(self._work())

    async def Echo(
        self,
        request: echo_pb2.EchoRequest,
        context: grpc.aio.ServicerContext[object, object],  # noqa: ARG002
    ) -> echo_pb2.EchoReply:
        answer: asyncio.Future[echo_pb2.EchoReply] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, answer))
        return await answer

    async def _work(self) -> None:
        while True:
            batch = await self._gather()
            replies = await step([request for request, _ in batch])
            for (_, answer), reply in zip(batch, replies, strict=True):
                if not answer.done():
                    answer.set_result(reply)

    async def _gather(self) -> list[_Waiting]:
        batch = [await self._queue.get()]
        try:
            async with asyncio.timeout(WINDOW_S):
                while len(batch) < SIZE_MAX:
                    batch.append(await self._queue.get())
        except TimeoutError:
            pass
        return batch
