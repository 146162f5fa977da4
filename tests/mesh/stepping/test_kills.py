"""A replica that answers by steps is killed while requests run and wait in it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

import pyserve
from tests.support.mesh import running_mesh
from tests.support.session import attached
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_STEPS = 40
_CALLS = 20


@pytest.mark.parametrize("stream", [False, True])
async def test_what_waits_goes_on_elsewhere_and_what_runs_fails_at_once(stream: bool) -> None:
    with running_mesh("tests.mesh.stepping.apps:two") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        calls = [asyncio.ensure_future(_last(handle, stream)) for _ in range(_CALLS)]
        await asyncio.to_thread(wait_until, lambda: sum(_of_each(handle, "waiting")) >= _CALLS - 4)
        victim = (await asyncio.to_thread(_of_each, handle, "pid"))[0]
        os.kill(victim, signal.SIGKILL)
        killed_at = time.monotonic()
        first, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        failed = [call for call in first if call.exception() is not None]
        assert time.monotonic() - killed_at < 5
        found = await asyncio.gather(*calls, return_exceptions=True)
        errors = [each for each in found if isinstance(each, BaseException)]
        assert len(failed) == len(errors) == 1, found
        assert isinstance(errors[0], pyserve.DeploymentUnavailable)


def _of_each(handle: Any, method: str) -> list[int]:
    found: list[int] = handle.broadcast(method).result(timeout_s=10)
    return found


async def _last(handle: Any, stream: bool) -> int:
    if not stream:
        version: int = await handle.remote(_STEPS)
        return version
    streamed: list[int] = [each async for each in handle.options(stream=True).remote(_STEPS)]
    return streamed[-1]
