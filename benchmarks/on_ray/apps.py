"""The application of both sides: a service of gRPC, and a deployment that calls another one.

The classes are the same; only what decorates them differs, and that Ray Serve takes the messages of
a method without the generated base class.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

_ONGOING_MAX = 1_000


class Echo:
    """Answers with what it is given, as ``services.echo`` does."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        return echo_pb2.EchoReply(payload=request.payload)


class Servicer(echo_pb2_grpc.EchoServicer):
    """The same, as generated code wants it."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:  # type: ignore[override]  # ours may leave the context out
        return echo_pb2.EchoReply(payload=request.payload)


class Callee:
    """Answers with what it is given."""

    async def __call__(self, value: int) -> int:
        return value


class Caller:
    """Makes calls of a handle."""

    def __init__(self, callee: Any) -> None:
        self._callee = callee

    async def drive(self, calls: int, at_once: int) -> dict[str, float]:
        """Make so many calls; return how long they took, and how many answers were wrong."""
        wrong = 0

        async def some(first: int) -> None:
            nonlocal wrong
            for value in range(first, calls, at_once):
                wrong += await self._callee.remote(value) != value

        before_s = time.perf_counter()
        await asyncio.gather(*(some(first) for first in range(at_once)))
        return {"wall_s": time.perf_counter() - before_s, "wrong": wrong}


def of_pyserve() -> dict[str, Any]:
    """Return our applications, by their names."""
    deployment: Any = pyserve.deployment(max_ongoing_requests=_ONGOING_MAX)
    return {
        "echo": deployment(Servicer).bind(),
        "calls": deployment(Caller).bind(deployment(Callee).bind()),
    }


def of_ray_serve() -> dict[str, Any]:
    """Return theirs."""
    from ray import serve

    deployment: Any = serve.deployment(max_ongoing_requests=_ONGOING_MAX)
    return {
        "echo": deployment(Echo).bind(),
        "calls": deployment(Caller).bind(deployment(Callee).bind()),
    }
