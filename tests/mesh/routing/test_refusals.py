"""What clients are told whose calls no replica takes."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

import pyserve
from pyserve.errors import BackPressure, DeploymentUnavailable
from tests.mesh.routing.apps import Front, Held
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


async def test_a_refusal_names_the_deployment_the_limit_and_who_was_full(
    client: httpx.Client,
) -> None:
    handle = pyserve.run(Held.bind(), name="held", route_prefix="/held")
    async with httpx.AsyncClient(base_url=client.base_url, timeout=30) as other:
        first = asyncio.create_task(other.post("/held"))
        await eventually(lambda: 1 == pyserve.status().ingress.in_flight)

        refused = await other.post("/held", headers={"x-pyserve-explain": "1"})
        assert 503 == refused.status_code
        assert refused.text.startswith("held/Held: its replica is not free")
        assert "(max_queued_requests=0)" in refused.text
        explained = json.loads(refused.headers["x-pyserve-explain"])
        assert (None, "queue_full") == (explained["chosen"], explained["refused"])
        assert ["full"] == [each["out"] for each in explained["replicas"]]
        assert "x-pyserve-explain" not in (await other.post("/held")).headers

        await handle.broadcast("open")
        answer = await first
        assert (200, "done") == (answer.status_code, answer.text)
        answer = await other.post("/held", headers={"x-pyserve-explain": "1"})
        explained = json.loads(answer.headers["x-pyserve-explain"])
        assert explained["replicas"][0]["id"] == explained["chosen"]
    pyserve.delete("held")


async def test_a_handle_is_told_as_much(client: httpx.Client) -> None:
    handle = pyserve.run(Held.bind(), name="held", route_prefix="/held")
    calls = {asyncio.ensure_future(handle.remote()) for _ in range(2)}
    done, held = await asyncio.wait(calls, timeout=30, return_when=asyncio.FIRST_COMPLETED)

    [refused] = done
    told = r"held/Held: its replica is not free, .*\(max_queued_requests=0\)"
    with pytest.raises(BackPressure, match=told):
        refused.result()
    await handle.broadcast("open")
    assert ["done"] == [await each for each in held]
    pyserve.delete("held")


@pytest.mark.parametrize("has_served", [False, True])
def test_who_asks_for_a_deployment_without_replicas_is_told_at_once(
    client: httpx.Client, has_served: bool
) -> None:
    if has_served:
        pyserve.run(Front.bind("new"), name="zero", route_prefix="/zero")
        assert "new" == client.post("/zero").text
    parked = pyserve.Deployment(Front.target, Front.settings.updated({"num_replicas": 0}))
    none = parked.bind("new")
    handle = pyserve.run(none, name="zero", route_prefix="/zero")
    told = "zero/Front has no replicas, as it is configured (num_replicas=0)"

    answer = client.post("/zero")
    assert (503, told) == (answer.status_code, answer.text.strip())
    with pytest.raises(DeploymentUnavailable, match="num_replicas=0"):
        handle.remote().result(timeout_s=30)
    assert 404 == client.post("/other").status_code

    pyserve.run(Front.bind("again"), name="zero", route_prefix="/zero")
    assert "again" == client.post("/zero").text
    pyserve.delete("zero")
