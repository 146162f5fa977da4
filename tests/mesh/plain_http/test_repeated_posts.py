"""Requests by POST whose handler may run again survive their replicas."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator

import httpx
import pytest

import pyserve
from pyserve.handle import DeploymentHandle
from tests.mesh.plain_http.repeating import Api, Attempts, Marked
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

# A replica may take over a request before it is killed itself, so each may be repeated twice: not
# more than the ten repetitions that are allowed however few calls there are.
REQUESTS = 5
_REPEATED = {2, 3}


@pytest.fixture(scope="module")
def attempts(base_url: str) -> Iterator[DeploymentHandle]:
    handle = pyserve.run(Attempts.bind(), name="attempts", route_prefix=None)
    pyserve.run(Marked.bind(handle), name="marked", route_prefix="/marked")
    pyserve.run(Api.bind(handle), name="api", route_prefix="/api")
    try:
        yield handle
    finally:
        for name in ("marked", "api", "attempts"):
            pyserve.delete(name)


async def _answers_of_killed(
    attempts: DeploymentHandle,
    deployment: str,
    key: str,
    post: Callable[[str], asyncio.Task[httpx.Response]],
) -> list[httpx.Response]:
    """Send requests, and kill all replicas when each has begun; return the answers."""
    before = set(await attempts.all.remote())
    sent = [post(f"{key}-{number}") for number in range(REQUESTS)]

    async def all_begun() -> bool:
        return len(set(await attempts.all.remote()) - before) == REQUESTS

    await eventually(all_begun)
    application = pyserve.status().applications[deployment.lower()]
    for replica in application.deployments[deployment].replicas:
        os.kill(replica.pid, signal.SIGKILL)
    return await asyncio.gather(*sent)


@pytest.mark.long
async def test_a_plain_handler_that_is_marked_loses_none(
    base_url: str, attempts: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=30) as client:
        answers = await _answers_of_killed(
            attempts,
            "Marked",
            key,
            lambda each: asyncio.create_task(client.post("/marked", json={"key": each})),
        )
    assert [200] * REQUESTS == [each.status_code for each in answers], answers[0].text
    assert _REPEATED >= {each.json()["attempt"] for each in answers}


async def test_a_marked_route_loses_none(
    base_url: str, attempts: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=30) as client:
        answers = await _answers_of_killed(
            attempts,
            "Api",
            key,
            lambda each: asyncio.create_task(
                client.post("/api/v1/small/completions", params={"key": each})
            ),
        )
    assert [200] * REQUESTS == [each.status_code for each in answers], answers[0].text
    assert _REPEATED >= {each.json()["attempt"] for each in answers}


async def test_one_that_is_not_marked_runs_once(
    base_url: str, attempts: DeploymentHandle, key: str
) -> None:
    async with httpx.AsyncClient(base_url=base_url, timeout=30) as client:
        answers = await _answers_of_killed(
            attempts,
            "Api",
            key,
            lambda each: asyncio.create_task(client.post("/api/v1/charge", params={"key": each})),
        )
    assert {503} == {each.status_code for each in answers}
    counts = await attempts.all.remote()
    assert {1} == {counts[f"{key}-{number}"] for number in range(REQUESTS)}
