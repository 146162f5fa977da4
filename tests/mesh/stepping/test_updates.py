"""An update while requests wait and run in a replica that answers by steps."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest

import pyserve
from tests.mesh.stepping.apps import Slow, Tales
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# Each takes a fifth of a second, so most of them wait when the new version is ready.
_STEPS = 40
_CALLS = 24
# Of these the old version would need a minute.
_LONG = 600
_STREAMS = 20
# Of these each needs three seconds, less than the grace.
_SHORT = 60


async def test_what_waits_goes_to_the_new_version() -> None:
    with running_mesh("tests.mesh.stepping.apps:slow") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        calls = [asyncio.ensure_future(_result(handle)) for _ in range(_CALLS)]
        posts = [asyncio.create_task(_posted(running)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: _waiting(handle) >= _CALLS)
        await asyncio.to_thread(pyserve.run, Slow.bind(2))
        versions = [*(await asyncio.gather(*calls)), *(await asyncio.gather(*posts))]
        assert set(versions) == {1, 2}


async def test_streams_go_on_at_the_new_version() -> None:
    """A step of the old version takes a hundred times longer than one of the new version."""
    with running_mesh("tests.mesh.stepping.apps:tales") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        began = time.monotonic()
        streams = [asyncio.ensure_future(_tale(handle)) for _ in range(_STREAMS)]
        lasts = [asyncio.ensure_future(_last(handle)) for _ in range(3)]
        events = asyncio.create_task(_events(running))
        await asyncio.to_thread(wait_until, lambda: _admitted(handle) == _STREAMS + 4)
        await asyncio.to_thread(pyserve.run, Tales.bind(2, 0.001))
        told = [*(await asyncio.gather(*streams)), await events]
        took_s = time.monotonic() - began
        for each in told:
            assert [number for _, number in each] == [*range(1, _LONG + 1)]
            versions = [version for version, _ in each]
            assert versions == sorted(versions)
            assert set(versions) == {1, 2}
        assert [tuple(each) for each in await asyncio.gather(*lasts)] == [(2, _LONG)] * 3
        assert took_s < _LONG * 0.1 / 3
        assert await handle.tally.remote() == (0, _STREAMS + 4, _STREAMS + 4)


@pytest.mark.parametrize("change", ["delete", "one replica"])
async def test_streams_end_where_fewer_replicas_or_none_are_left(change: str) -> None:
    with running_mesh("tests.mesh.stepping.apps:two_tales") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        streams = [asyncio.ensure_future(_tale(handle, _SHORT)) for _ in range(_STREAMS)]
        await asyncio.to_thread(wait_until, lambda: _admitted(handle) == _STREAMS)
        if change == "delete":
            await asyncio.to_thread(pyserve.delete, "default")
        else:
            await asyncio.to_thread(pyserve.run, Tales.options(num_replicas=1).bind(1, 0.05))
        for each in await asyncio.gather(*streams):
            assert [number for _, number in each] == [*range(1, _SHORT + 1)]


async def _tale(handle: Any, steps: int = _LONG) -> list[tuple[int, int]]:
    return [each async for each in handle.options(stream=True).remote(steps)]


async def _last(handle: Any) -> tuple[int, int]:
    last: tuple[int, int] = await handle.remote(_LONG)
    return last


async def _events(running: RunningMesh) -> list[tuple[int, int]]:
    headers = {"accept": "text/event-stream"}
    async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
        url = f"http://{running.address}/"
        async with client.stream("POST", url, json=_LONG, headers=headers) as answer:
            lines = [line async for line in answer.aiter_lines() if line]
    return [tuple(json.loads(line.removeprefix("data: "))) for line in lines]


def _admitted(handle: Any) -> int:
    """Return how many requests the replicas have admitted."""
    return sum(tally[0] for tally in handle.broadcast("tally").result(timeout_s=10))


def _waiting(handle: Any) -> int:
    count: int = handle.waiting.remote().result(timeout_s=10)
    return count


async def _result(handle: Any) -> int:
    version: int = await handle.remote(_STEPS)
    return version


async def _posted(running: RunningMesh) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.post(f"http://{running.address}/", json=_STEPS)
        assert answer.status_code == 200, (answer.headers, answer.text)
        version: int = answer.json()
        return version
