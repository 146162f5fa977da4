"""Replicas come and go under a steady load over HTTP and gRPC, and no request fails."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import grpc
import httpx
import pytest

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.ingress import apps
from tests.support.mesh import RunningMesh
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
_TIMEOUT_S = 20.0
_CALLERS = 2
# A pause of each caller, so that replicas come up at their usual pace.
_PAUSE_S = 0.004
# Another application has the same service.
_OURS = (("application", "quick"),)
_REPLICAS = 2


def deploy(replicas: int) -> None:
    """Roll both deployments over to that many new replicas."""
    pyserve.run(
        apps.Quick.options(num_replicas=replicas).bind(), name="quick", route_prefix="/quick"
    )


def running() -> list[int]:
    """Return the processes of the replicas that serve."""
    deployments = pyserve.status().applications["quick"].deployments
    return [each.pid for each in deployments["Quick"].replicas if each.state == "RUNNING"]


@pytest.mark.parity("S-61")
async def test_no_request_fails_while_replicas_come_and_go(mesh: RunningMesh) -> None:
    await asyncio.to_thread(deploy, 1)
    seen: Counter[object] = Counter()
    stop = asyncio.Event()

    async def load(call: Callable[[], Awaitable[object]]) -> None:
        while not stop.is_set():
            seen[await call()] += 1
            await asyncio.sleep(_PAUSE_S)

    limits = httpx.Limits(max_keepalive_connections=_CALLERS)
    async with (
        httpx.AsyncClient(
            base_url=f"http://{mesh.address}", timeout=_TIMEOUT_S, limits=limits
        ) as client,
        grpc.aio.insecure_channel(mesh.address) as channel,
    ):
        stub = echo_pb2_grpc.EchoStub(channel)

        async def over_http() -> object:
            return "http", (await client.get("/quick")).status_code

        async def over_grpc() -> object:
            try:
                await stub.Echo(echo_pb2.EchoRequest(), timeout=_TIMEOUT_S, metadata=_OURS)
            except grpc.aio.AioRpcError as error:
                return "grpc", error.code(), error.details()
            return "grpc", "OK"

        async with asyncio.TaskGroup() as callers:
            for call in (over_http, over_grpc):
                for _ in range(_CALLERS):
                    callers.create_task(load(call))
            try:
                await _churn(seen)
            finally:
                stop.set()

    await asyncio.to_thread(pyserve.delete, "quick")
    assert {("http", 200), ("grpc", "OK")} == set(seen), seen


async def _churn(seen: Counter[object]) -> None:
    """Scale up and down by deploys, and end replicas from outside, under load all the time."""
    before = seen.total()
    await asyncio.to_thread(deploy, _REPLICAS)
    assert seen.total() > before
    pids = await asyncio.to_thread(running)
    os.kill(pids[0], signal.SIGTERM)
    await eventually(partial(_is_replaced, pids[0]), _TIMEOUT_S)
    steady = seen.total()
    await eventually(lambda: seen.total() > steady + 20, _TIMEOUT_S)


async def _is_replaced(pid: int) -> bool:
    pids = await asyncio.to_thread(running)
    return pid not in pids and len(pids) == _REPLICAS
