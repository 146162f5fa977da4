"""What full deployments answer at each door, and that bursts which fit are not refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

import pyserve
from pyserve.driver.session import Session
from pyserve.exceptions import BackPressureError
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

_PLACES, _QUEUED = 2, 3


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    with running_mesh("tests.mesh.apps.narrow:app") as running:
        yield running


@pytest.fixture
def session(mesh: RunningMesh) -> Iterator[Session]:
    with attached(mesh.home) as session:
        yield session


@pytest.mark.parity("G-04", "G-05")
async def test_each_router_has_a_queue_and_says_by_its_door_when_it_is_full(
    mesh: RunningMesh, session: Session
) -> None:
    """The handle's queue is full while that of the ingress is empty, and the other way round."""
    handle = pyserve.DeploymentHandle("Narrow", "default")
    async with httpx.AsyncClient(base_url=f"http://{mesh.address}", timeout=30) as client:
        held = [asyncio.ensure_future(handle.remote("hold")) for _ in range(_PLACES + _QUEUED)]

        async def is_full() -> bool:
            return [_PLACES] == await handle.broadcast("held")

        await eventually(is_full)
        with pytest.raises(BackPressureError):
            await handle.remote("")
        waiting = [asyncio.create_task(client.post("/", json="")) for _ in range(_QUEUED)]
        await eventually(lambda: _QUEUED == session.client.status().ingress.parked)
        refused = await client.post("/", json="")
        assert 503 == refused.status_code
        assert "7" == refused.headers["retry-after"]
        await handle.broadcast("open")
        assert ["done"] * len(held) == await asyncio.gather(*held)
        assert {200} == {answer.status_code for answer in await asyncio.gather(*waiting)}


@pytest.mark.parity("G-04")
async def test_bursts_that_fit_are_not_refused(session: Session) -> None:
    """Calls that are sent at once do not count as waiting, however many come in one turn."""
    handle = pyserve.DeploymentHandle("Narrow", "default")
    for _ in range(100):
        calls = (handle.remote("") for _ in range(_PLACES + _QUEUED))
        assert {"done": _PLACES + _QUEUED} == Counter(await asyncio.gather(*calls))
