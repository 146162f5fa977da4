"""Two deployments of which one calls the other; both note each call that they begin."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from starlette.requests import Request

import pyserve
from pyserve.config import DeploymentKeywords
from services.echo import echo_pb2, echo_pb2_grpc

# Long beside a drain's first steps, so that a replica that leaves always has calls in flight.
_CALL_S = 0.03
# Long beside a look at the status under that load, so that nobody misses a replica that leaves.
_CLOSE_S = 1.0
_OPTIONS: DeploymentKeywords = {"graceful_shutdown_timeout_s": 10.0, "health_check_period_s": 60.0}


class Journal:
    """A file to which replicas append a line for each call."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, number: str) -> None:
        """Write so few bytes that they are never mixed with those of others."""
        os.write(self._file, f"{number}\n".encode())


@pyserve.deployment(**_OPTIONS)
class Back:
    """Is called by a handle."""

    def __init__(self, journal: str, release: int) -> None:
        del release
        self._journal = Journal(journal)

    async def __call__(self, number: str) -> str:
        """Return what came."""
        self._journal.note(number)
        await asyncio.sleep(_CALL_S)
        return number

    async def aclose(self) -> None:
        """Take a moment to end."""
        await asyncio.sleep(_CLOSE_S)


@pyserve.deployment(**_OPTIONS)
class Front(echo_pb2_grpc.EchoServicer):
    """Takes gRPC and plain HTTP."""

    def __init__(self, journal: str, release: int, back: pyserve.DeploymentHandle) -> None:
        del release
        self._journal = Journal(journal)
        self._back = back

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        """Return what came."""
        await self._take(request.payload.decode())
        return echo_pb2.EchoReply(payload=request.payload)

    async def EchoSuspend(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        """Let the other deployment return it."""
        answer = await self._back.remote(request.payload.decode())
        return echo_pb2.EchoReply(payload=answer.encode())

    async def __call__(self, request: Request) -> str:
        """Return what the body says."""
        number = (await request.body()).decode()
        await self._take(number)
        return number

    async def aclose(self) -> None:
        """Take a moment to end."""
        await asyncio.sleep(_CLOSE_S)

    async def _take(self, number: str) -> None:
        self._journal.note(number)
        await asyncio.sleep(_CALL_S)


def app(journal: Path, *, release: int, replicas: int) -> pyserve.Application:
    """Return both; another release is another version of each."""
    back = Back.options(num_replicas=replicas).bind(str(journal), release)
    front: pyserve.Deployment[Front] = Front.options(num_replicas=replicas)
    return front.bind(str(journal), release, back)
