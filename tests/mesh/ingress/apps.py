"""Deployments that say how long they may take, wait when asked to, and count what they did."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

import pyserve
from pyserve.request import current_request
from services.echo import echo_pb2, echo_pb2_grpc


def remaining_s() -> float | None:
    """Return how long the request that is being handled may still take."""
    request = current_request()
    deadline = request.deadline if request is not None else None
    return None if deadline is None else deadline - time.monotonic()


@pyserve.deployment
class Child:
    """What ``Web`` calls."""

    async def remaining(self) -> float | None:
        """Return the time that is left here."""
        return remaining_s()


@pyserve.deployment(health_check_period_s=60.0)
class Web:
    """Takes plain HTTP."""

    def __init__(self, child: pyserve.DeploymentHandle) -> None:
        self._child = child

    async def __call__(self, request: Request) -> dict[str, object]:
        """Wait ``wait_s``, or fail, or say how long it and its child may take."""
        if "fail" in request.query_params:
            raise ValueError("the secret of this replica")
        await asyncio.sleep(float(request.query_params.get("wait_s", 0)))
        return {
            "path": request.url.path,
            "root_path": request.scope["root_path"],
            "pid": os.getpid(),
            "here_s": remaining_s(),
            "child_s": await self._child.remaining.remote(),
        }


@pyserve.deployment(
    max_ongoing_requests=1,
    max_queued_requests=1,
    backpressure_config={"status_code": 429},
)
class Narrow:
    """Has one place and one waiting place, and counts what it began."""

    def __init__(self) -> None:
        self._begun = 0

    async def __call__(self, request: Request) -> int:
        """Wait as long as the body says; return which call this is."""
        self._begun += 1
        begun = self._begun
        await asyncio.sleep(float(await request.body() or 0))
        return begun


@pyserve.deployment(request_timeout_s=1.5)
class Hasty:
    """Has a time limit of its own."""

    async def __call__(self, request: Request) -> float | None:
        """Wait as long as the body says; return how long it might have taken."""
        left_s = remaining_s()
        await asyncio.sleep(float(await request.body() or 0))
        return left_s


@pyserve.deployment
class Correlated:
    """Names its answers itself, as middlewares for correlation ids do."""

    async def __call__(self, request: Request) -> Response:
        """Answer with the id that the query has."""
        return Response(headers={"x-request-id": request.query_params["id"]})


@pyserve.deployment(graceful_shutdown_timeout_s=5.0)
class Echo(echo_pb2_grpc.EchoServicer):
    """A servicer without plain HTTP."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        """Return what came."""
        return echo_pb2.EchoReply(payload=request.payload)

    async def Perform(self, request: echo_pb2.PerformRequest) -> echo_pb2.PerformReply:
        """Wait as long as is asked for, and say how long there was."""
        left_s = remaining_s()
        await asyncio.sleep(request.delay_s)
        return echo_pb2.PerformReply(payload=repr(left_s).encode())


web = Web.bind(Child.bind())
# Long beside a drain's first steps, so that a replica that leaves always has calls in flight.
_CALL_S = 0.05


@pyserve.deployment(
    graceful_shutdown_timeout_s=5.0, health_check_period_s=60.0, rolling_update_percentage=1.0
)
class Quick(echo_pb2_grpc.EchoServicer):
    """Takes plain HTTP and gRPC, and lasts a moment."""

    async def __call__(self, request: Request) -> int:
        """Return the process."""
        del request
        await asyncio.sleep(_CALL_S)
        return os.getpid()

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        """Return what came."""
        await asyncio.sleep(_CALL_S)
        return echo_pb2.EchoReply(payload=request.payload)


@pyserve.deployment
class Endless:
    """Answers with a stream until its client leaves."""

    async def __call__(self, _request: Request) -> AsyncIterator[bytes]:
        while True:
            yield b"more"
            await asyncio.sleep(0.01)
