"""services/echo's Echo in batches, with a step of 10 ms: our decorator, and a batcher by hand.

``EchoSuspend`` answers what the time between steps was, as ``Between.report`` has it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence

import grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

SIZE_MAX = 32
WINDOW_S = 0.005
STEP_S = 0.010


class Between:
    """What passes between two steps, from the last line of one to the first line of the next."""

    def __init__(self) -> None:
        self._ended: float | None = None
        self._passed_s: list[float] = []

    def begin(self) -> None:
        """Note the first line of a step."""
        if self._ended is not None:
            self._passed_s.append(time.perf_counter() - self._ended)

    def end(self) -> None:
        """Note the last line of a step."""
        self._ended = time.perf_counter()

    def report(self) -> bytes:
        """Return the median in milliseconds as JSON, and forget the times."""
        passed_s, self._passed_s = self._passed_s, []
        median_s = statistics.median(passed_s) if passed_s else 0.0
        return json.dumps({"between_ms": median_s * 1e3, "steps": len(passed_s)}).encode()


BETWEEN = Between()
"""Of this process, which has one server."""


async def step(requests: Sequence[echo_pb2.EchoRequest]) -> list[echo_pb2.EchoReply]:
    """Sleep for ``STEP_S``, as the loop's timer has it: the loop is free meanwhile."""
    BETWEEN.begin()
    await asyncio.sleep(STEP_S)
    replies = [echo_pb2.EchoReply(payload=request.payload) for request in requests]
    BETWEEN.end()
    return replies


@pyserve.deployment(max_ongoing_requests=1024)
class Batched(echo_pb2_grpc.EchoServicer):
    """Ours."""

    @pyserve.batch(max_batch_size=SIZE_MAX, batch_wait_timeout_s=WINDOW_S)
    async def Echo(self, requests: list[echo_pb2.EchoRequest]) -> list[echo_pb2.EchoReply]:
        return await step(requests)

    async def EchoSuspend(self, request: object, context: object) -> echo_pb2.EchoReply:  # noqa: ARG002
        return echo_pb2.EchoReply(payload=BETWEEN.report())


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

    async def EchoSuspend(self, request: object, context: object) -> echo_pb2.EchoReply:  # noqa: ARG002
        return echo_pb2.EchoReply(payload=BETWEEN.report())

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
