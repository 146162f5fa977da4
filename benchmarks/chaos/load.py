"""Calls that begin by a schedule, whatever becomes of those before them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import grpc.aio

import pyserve
from pyserve.errors import PyserveError
from services.echo import echo_pb2, echo_pb2_grpc

# A mesh that answers nothing must not fill this process with calls.
_OUTSTANDING_MAX = 5_000
_TIMEOUT_S = 20.0

Call = Callable[[], Awaitable[str]]


class OpenLoop:
    """Begins calls at a rate and counts how they end.

    Args:
        calls: Take turns; each returns the name of its status.
        rate_per_s: Of all of them together.

    Attributes:
        ended: Calls by status; those that could not begin count as "not started".
        ends_s: When each good answer came, in seconds of ``time.monotonic``.
        latencies_s: How long each good answer took.
    """

    def __init__(self, calls: Sequence[Call], rate_per_s: float) -> None:
        self._calls = calls
        self._interval_s = 1.0 / rate_per_s
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended: Counter[str] = Counter()
        self.ends_s: list[float] = []
        self.latencies_s: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Begin calls until ``stop`` is set, then see all of them to their end."""
        due = time.monotonic()
        number = 0
        while not stop.is_set():
            await asyncio.sleep(max(due - time.monotonic(), 0.0))
            while due <= time.monotonic():
                self._begin(self._calls[number % len(self._calls)])
                number += 1
                due += self._interval_s
        await asyncio.gather(*self._tasks)

    async def run_for(self, seconds: float) -> None:
        """Do so for a time."""
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await self.run(stop)

    def _begin(self, call: Call) -> None:
        if len(self._tasks) >= _OUTSTANDING_MAX:
            self.ended["not started"] += 1
            return
        task = asyncio.create_task(self._one(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, call: Call) -> None:
        begun_s = time.monotonic()
        status = await call()
        self.ended[status] += 1
        if status == "OK":
            self.ends_s.append(time.monotonic())
            self.latencies_s.append(self.ends_s[-1] - begun_s)

    def figures(self) -> dict[str, object]:
        """Return plain data."""
        cuts = statistics.quantiles(self.latencies_s, n=100) if len(self.ends_s) > 1 else [0.0] * 99
        return {
            "calls": self.ended.total(),
            "by_status": dict(self.ended),
            "p50_ms": round(cuts[49] * 1e3, 2),
            "p99_ms": round(cuts[98] * 1e3, 2),
        }


def perform(channel: grpc.aio.Channel, work_s: float) -> Call:
    """Return a call of services/echo that takes so long in its replica."""
    stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)
    request = echo_pb2.PerformRequest(payload=b"x", delay_s=work_s)

    async def call() -> str:
        try:
            reply = await stub.Perform(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK" if reply.payload == b"x" else "wrong answer"

    return call


def ask(handle: pyserve.DeploymentHandle, *answers: object) -> Call:
    """Return a call of a handle; without an answer each one is right."""

    async def call() -> str:
        try:
            found = await handle.options(timeout_s=_TIMEOUT_S).remote()
        except PyserveError as error:
            return error.code.name
        return "OK" if not answers or found in answers else "wrong answer"

    return call
