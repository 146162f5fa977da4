"""Routers send calls by what they cost to replicas that say what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest

import pyserve
from pyserve.errors import OptionError
from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_ENDLESS = 1_000_000
_AT_ONCE = 8


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    with running_mesh("tests.mesh.stepping.apps:costly") as running, attached(running.home):
        yield running


def handle() -> pyserve.DeploymentHandle[Any]:
    return pyserve.DeploymentHandle("Costly", "default")


@pytest.fixture
async def held() -> AsyncIterator[int]:
    """Hold a replica by a request that takes most of its budget; return its process."""
    stream = handle().options(stream=True, cost=900).remote({"count": _ENDLESS, "cost": 900})
    try:
        yield await anext(aiter(stream))
    finally:
        stream.cancel()


async def check_others_go_elsewhere(held: int, ask: Callable[[], Awaitable[int]]) -> None:
    """By their number every other call at once would go to the replica that is held."""

    async def round_of_calls() -> set[int]:
        return set(await asyncio.gather(*(ask() for _ in range(_AT_ONCE))))

    async with asyncio.timeout(20):
        while held in await round_of_calls():
            pass
    for _ in range(5):
        assert held not in await round_of_calls()


@pytest.mark.usefixtures("mesh")
class TestReplicas:
    async def test_one_that_an_expensive_request_holds_gets_no_cheap_call_of_a_handle(
        self, held: int
    ) -> None:
        await check_others_go_elsewhere(held, lambda: handle().remote({"count": 2}))

    async def test_the_same_by_http_of_which_the_ingress_has_not_sent_the_expensive_one(
        self, held: int, mesh: RunningMesh
    ) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://{mesh.address}", trust_env=False, timeout=20
        ) as client:

            async def ask() -> int:
                answer = await client.post("/", json={"count": 2}, headers={"pyserve-cost": "1"})
                return int(answer.raise_for_status().json())

            await check_others_go_elsewhere(held, ask)


class TestTold:
    async def test_by_http_a_cost_that_is_no_amount_is_refused(self, mesh: RunningMesh) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://{mesh.address}", trust_env=False, timeout=20
        ) as client:
            answer = await client.post("/", json={"count": 1}, headers={"pyserve-cost": "much"})
        assert answer.status_code == 400
        assert "pyserve-cost" in answer.text

    def test_by_grpc_too(self, mesh: RunningMesh) -> None:
        with grpc.insecure_channel(mesh.address) as channel:
            stub = echo_pb2_grpc.EchoStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.Echo(echo_pb2.EchoRequest(), metadata=(("pyserve-cost", "-1"),), timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "pyserve-cost" in (caught.value.details() or "")

    @pytest.mark.parametrize("cost", [-1, 1e13, float("nan")])
    def test_by_a_handle_it_is_checked_where_it_is_given(self, cost: float) -> None:
        with pytest.raises(OptionError, match="cost"):
            handle().options(cost=cost)


class TestQueue:
    async def test_no_more_waits_in_a_router_than_its_queue_may_cost(
        self, mesh: RunningMesh
    ) -> None:
        del mesh
        queued = pyserve.DeploymentHandle("Queued", "default")
        running = queued.options(stream=True).remote({"count": _ENDLESS, "cost": 1})
        await anext(aiter(running))
        waiting = [queued.options(cost=40).remote({"count": 1, "cost": 40}) for _ in range(2)]
        tasks = [asyncio.ensure_future(each) for each in waiting]

        def is_refused(cost: float) -> bool:
            try:
                queued.options(cost=cost, timeout_s=0.2).remote({"count": 1}).result()
            except pyserve.BackPressure as error:
                return "max_queued_cost=100" in str(error)
            except pyserve.RequestTimeout:
                return False
            return False

        await asyncio.to_thread(wait_until, lambda: is_refused(30), what="the queue is full")
        assert not await asyncio.to_thread(is_refused, 10)
        running.cancel()
        await asyncio.gather(*tasks)
