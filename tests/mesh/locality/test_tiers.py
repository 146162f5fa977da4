"""Near replicas first, of the ingress and of handles, and farther ones when those have no room."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

import pyserve
from pyserve.driver.session import Session
from services.echo import echo_pb2, echo_pb2_grpc
from tests.mesh.locality.conftest import NODE_A, NODE_B, NODE_C, mesh_on_nodes
from tests.support.mesh import RunningMesh
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

Drive = Callable[[dict[str, str]], Session]
# Two replicas of equal rank both get one of so many calls, but for one run in 2^39.
_CALLS = 40
_PLACES = 2  # of each replica


@pytest.fixture
async def client(mesh: RunningMesh) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{mesh.address}", timeout=30) as client:
        yield client


async def nodes_of(client: httpx.AsyncClient, count: int) -> set[str]:
    """Return where so many calls went, one after the other."""
    return {(await client.post("/", json="")).text for _ in range(count)}


@pytest.mark.parity("S-50", "S-51", "S-52")
async def test_the_ingress_fills_its_node_then_its_zone_then_the_rest(
    client: httpx.AsyncClient, drive: Drive
) -> None:
    """And comes back to the near ones as soon as they have room."""
    session = drive(NODE_A)
    held: list[asyncio.Task[httpx.Response]] = []

    async def hold() -> None:
        held.extend(asyncio.create_task(client.post("/", json="hold")) for _ in range(_PLACES))
        await eventually(
            lambda: len(held) == sum(session.client.status().ingress.in_flight_of_replica.values())
        )

    for node in ("node-a", "node-b", "node-c"):
        assert {node} == await nodes_of(client, 20)
        await hold()
    parked = asyncio.create_task(client.post("/", json=""))
    await eventually(lambda: 1 == session.client.status().ingress.parked)
    await pyserve.DeploymentHandle("Placed", "default").broadcast("open")
    where = [answer.text for answer in await asyncio.gather(*held)]
    assert ["node-a", "node-a", "node-b", "node-b", "node-c", "node-c"] == where
    assert 200 == (await parked).status_code
    assert {"node-a"} == await nodes_of(client, 20)


@pytest.mark.parity("S-50")
async def test_a_call_is_told_how_far_each_replica_is(client: httpx.AsyncClient) -> None:
    answer = await client.post("/", json="", headers={"x-pyserve-explain": "1"})
    explained = json.loads(answer.headers["x-pyserve-explain"])

    tiers = {each["id"]: each["tier"] for each in explained["replicas"]}
    assert ["any", "node", "zone"] == sorted(tiers.values())
    assert "node" == tiers[explained["chosen"]]


@pytest.mark.parity("S-51", "S-52")
def test_the_switches_of_the_ingress_are_looked_at() -> None:
    """Without the node, replicas of the zone are equal; those of the other zone get nothing."""
    places = {"Placed": [NODE_B, NODE_C]}
    switch = {"RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0"}
    with mesh_on_nodes("tests.mesh.locality.apps:alone", places, **switch) as mesh:

        async def call() -> set[str]:
            async with httpx.AsyncClient(base_url=f"http://{mesh.address}", timeout=30) as client:
                return await nodes_of(client, _CALLS)

        assert {"node-a", "node-b"} == asyncio.run(call())


_EVERYWHERE = {"node-a", "node-b", "node-c"}
_NO_ZONE = {"PYSERVE_PREFER_LOCAL_ZONE": "0"}


@pytest.mark.parity("S-52", "S-53")
@pytest.mark.parametrize(
    ("environment", "option", "expected"),
    [
        pytest.param(NODE_B, None, {"node-a", "node-b"}, id="the zone by default"),
        pytest.param(NODE_C, None, {"node-c"}, id="the other zone by default"),
        pytest.param(NODE_B, True, {"node-b"}, id="the node if asked for"),
        pytest.param(NODE_B, "zone", {"node-a", "node-b"}, id="the zone if asked for"),
        pytest.param(NODE_B, False, _EVERYWHERE, id="none if asked for"),
        pytest.param({**NODE_B, **_NO_ZONE}, None, _EVERYWHERE, id="none by the environment"),
        pytest.param({**NODE_B, **_NO_ZONE}, True, {"node-b"}, id="the option wins"),
    ],
)
async def test_handles_prefer_what_they_are_told_to(
    drive: Drive, environment: dict[str, str], option: Any, expected: set[str]
) -> None:
    drive(environment)
    handle = pyserve.DeploymentHandle("Placed", "default")
    if option is not None:
        handle = handle.options(_prefer_local_routing=option)

    assert expected == {await handle.remote() for _ in range(_CALLS)}


@pytest.mark.parity("S-50", "S-53")
async def test_a_handle_that_prefers_its_node_goes_on_to_the_zone(drive: Drive) -> None:
    drive(NODE_B)
    handle = pyserve.DeploymentHandle("Placed", "default")
    handle = handle.options(_prefer_local_routing=True)
    held = [asyncio.ensure_future(handle.remote("hold")) for _ in range(_PLACES)]
    await asyncio.sleep(0)  # They are offered in this turn of the loop.
    assert {"node-a"} == {await handle.remote() for _ in range(10)}
    await handle.broadcast("open")
    assert ["node-b"] * _PLACES == await asyncio.gather(*held)


@pytest.mark.parity("S-53")
@pytest.mark.parametrize(("environment", "way"), [(NODE_A, "unix:"), (NODE_B, "ipv4:127.0.0.1:")])
async def test_calls_on_one_node_take_the_unix_socket(
    drive: Drive, environment: dict[str, str], way: str
) -> None:
    """The replica is on node A."""
    drive(environment)
    channel = pyserve.DeploymentHandle("Echo", "default").channel()
    stub: echo_pb2_grpc.EchoAsyncStub = echo_pb2_grpc.EchoStub(channel)
    reply = await stub.Perform(echo_pb2.PerformRequest(describe=True), timeout=30)

    assert reply.facts.peer.startswith(way)


@pytest.mark.parity("S-50")
@pytest.mark.parametrize(("deployment", "spills"), [("Predicting", True), ("Counting", False)])
async def test_who_predicts_spills_when_the_wait_is_longer_and_who_counts_when_all_is_full(
    drive: Drive, deployment: str, spills: bool
) -> None:
    """The near replica has room for 50 calls, but works on one after the other."""
    drive(NODE_A)
    handle = pyserve.DeploymentHandle(deployment, "default")

    async def closed_loop(clients: int, calls: int) -> Counter[str]:
        went: list[str] = []

        async def one() -> None:
            went.extend([await handle.remote() for _ in range(calls // clients)])

        await asyncio.gather(*(one() for _ in range(clients)))
        return Counter(went)

    # A stall of a busy machine is a long wait to who predicts.
    assert (await closed_loop(2, 100))["node-a"] >= (80 if spills else 100)
    # It learns that four calls at once end no faster than two; on a busy machine it takes longer.
    await closed_loop(4, 240)
    went_elsewhere = [(await closed_loop(8, 160))["node-b"]]
    while spills and went_elsewhere[-1] <= 40 and len(went_elsewhere) < 10:
        went_elsewhere.append((await closed_loop(8, 160))["node-b"])
    assert went_elsewhere[-1] > 40 if spills else went_elsewhere == [0]
