"""An update while requests wait in a replica that answers by steps."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import pyserve
from tests.mesh.stepping.apps import Slow
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# Each takes a fifth of a second, so most of them wait when the new version is ready.
_STEPS = 40
_CALLS = 24


async def test_what_waits_goes_to_the_new_version() -> None:
    with running_mesh("tests.mesh.stepping.apps:slow") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        calls = [asyncio.ensure_future(_result(handle)) for _ in range(_CALLS)]
        posts = [asyncio.create_task(_posted(running)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: _waiting(handle) >= _CALLS)
        await asyncio.to_thread(pyserve.run, Slow.bind(2))
        versions = [*(await asyncio.gather(*calls)), *(await asyncio.gather(*posts))]
        assert set(versions) == {1, 2}


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
