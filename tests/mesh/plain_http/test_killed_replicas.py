"""A replica that dies with requests in flight: each of them is answered, once."""

from __future__ import annotations

import asyncio
import os
import signal

import httpx
import pytest

import pyserve
from pyserve.api.handles.handle import DeploymentHandle
from tests.mesh.plain_http import apps
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

PATIENCE_S = 30


async def _begun(ledger: DeploymentHandle, key: str, count: int) -> bool:
    happened: list[str] = await ledger.until.remote(key, "child began")
    return count == happened.count("child began")


@pytest.mark.long
async def test_each_request_at_a_killed_replica_is_answered_and_the_next_one_serves(
    base_url: str, key: str
) -> None:
    pyserve.run(apps.Web.bind(apps.Ledger.bind()), name="killed", route_prefix="/killed")
    try:
        ledger = pyserve.get_deployment_handle("Ledger", "killed")
        url = f"{base_url}/killed"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            held = [
                asyncio.create_task(client.post("/hold", params={"key": key}, json={}))
                for _ in range(apps.PLACES - 1)
            ]
            await eventually(lambda: _begun(ledger, key, len(held)))
            (replica,) = pyserve.status().applications["killed"].deployments["Web"].replicas
            os.kill(replica.pid, signal.SIGKILL)
            answers = await asyncio.gather(*held)
            assert {503} == {answer.status_code for answer in answers}
            assert {"ingress"} == {answer.headers["pyserve-answered-by"] for answer in answers}
            # It waits until the replica that stands for the dead one serves.
            assert 200 == (await client.get("/about")).status_code
    finally:
        pyserve.delete("killed")
