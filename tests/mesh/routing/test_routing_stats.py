"""Policies of the user's that go by what replicas say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

import pyserve
from pyserve.errors import DeploymentFailed
from tests.mesh.routing.apps import ByPid, Fittest, Nameless, Reporting
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
TIMEOUT_S = 30.0


def run(policy: object) -> pyserve.DeploymentHandle:
    config = {"policy": policy, "request_routing_stats_period_s": 0.2}
    app = Reporting.options(request_router_config=config).bind()
    return pyserve.run(app, name="reporting", route_prefix="/reporting")


@pytest.fixture(autouse=True)
def nothing_left(base_url: str) -> Iterator[None]:
    yield
    for name in {"reporting", "nameless"} & pyserve.status().applications.keys():
        pyserve.delete(name)


@pytest.mark.parity("G-76")
async def test_calls_follow_a_number_that_replicas_report(client: httpx.Client) -> None:
    """Those of a handle and those of a client: each of the two routers is told."""
    handle = run(Fittest)
    everybody = set(await handle.broadcast("__call__"))
    assert 3 == len(everybody)

    async def goes_to() -> set[str]:
        answers = await asyncio.gather(*(handle.remote() for _ in range(6)))
        outside = [(await asyncio.to_thread(client.get, "/reporting")).text for _ in range(6)]
        return {*answers, *outside}

    for replica in sorted(everybody):
        await handle.broadcast("prefer", replica)

        async def all_go_there(fittest: str = replica) -> bool:
            return {fittest} == await goes_to()

        await eventually(all_go_there, TIMEOUT_S)


@pytest.mark.parity("G-76")
async def test_metadata_is_there_with_the_first_call(client: httpx.Client) -> None:
    handle = run(ByPid)
    pids = await handle.broadcast("pid")
    assert 3 == len(set(pids))

    first = [pid == await handle.options(session_id=str(pid)).pid.remote() for pid in 10 * pids]
    # One that answers late, on a busy machine, is not waited for; by chance it would be ten.
    assert first.count(True) >= 25


@pytest.mark.parity("G-76")
async def test_a_method_that_raises_leaves_the_last_stats_and_harms_no_call(
    client: httpx.Client,
) -> None:
    handle = run(Fittest)
    fittest = sorted(await handle.broadcast("__call__"))[0]
    await handle.broadcast("prefer", fittest)

    async def goes_there() -> bool:
        return {fittest} == {await handle.remote() for _ in range(6)}

    await eventually(goes_there, TIMEOUT_S)
    await handle.broadcast("fail")
    # Now every replica would say that it is not the fittest.
    await handle.broadcast("prefer", "nobody")

    async def all_have_failed_again() -> bool:
        assert fittest == await handle.remote()
        counts: list[int] = await handle.broadcast("failures")
        return min(counts) >= 2

    await eventually(all_have_failed_again, TIMEOUT_S)
    assert await goes_there()


@pytest.mark.parity("G-76")
def test_metadata_that_cannot_travel_fails_the_deploy(base_url: str) -> None:
    wanted = r"Nameless.record_replica_metadata \(.*apps.py:\d+\) failed: .*JSON cannot hold"
    with pytest.raises(DeploymentFailed, match=wanted):
        pyserve.run(Nameless.bind(), name="nameless", route_prefix="/nameless")
