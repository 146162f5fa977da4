"""A replica that answers by steps, or the process that steps for it, is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import pyserve
from tests.support.mesh import running_mesh
from tests.support.session import attached
from tests.support.waiting import eventually, wait_until

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


@pytest.mark.parametrize("events", [False, True])
async def test_plain_http_goes_on_elsewhere_as_long_as_it_waits(events: bool) -> None:
    """Nothing of an answer has left when a request begins to run, and yet it is not repeated."""
    with running_mesh("tests.mesh.stepping.apps:two") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        url = f"http://{running.address}/"
        limits = httpx.Limits(max_connections=_CALLS)
        async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:
            headers = {"accept": "text/event-stream"} if events else {}
            posts = [client.post(url, json=_STEPS, headers=headers) for _ in range(_CALLS)]
            calls = [asyncio.ensure_future(post) for post in posts]
            await asyncio.to_thread(wait_until, lambda: sum(_of_each(handle, "waiting")) >= 16)
            victim = (await asyncio.to_thread(_of_each, handle, "pid"))[0]
            os.kill(victim, signal.SIGKILL)
            found = await asyncio.gather(*calls)
        failed = [each for each in found if each.status_code != 200]
        assert [503] == [each.status_code for each in failed], [each.text for each in failed]
        assert "the connection broke" in failed[0].text
        assert failed[0].elapsed.total_seconds() < 5
        expected = "data: 1\n\n" if events else "1"
        assert [expected] * (_CALLS - 1) == [each.text for each in found if each not in failed]


async def test_a_replica_whose_process_is_killed_is_replaced() -> None:
    with running_mesh("tests.mesh.stepping.apps:process") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        stepper, replica = await handle.stepper.remote(), await handle.pid.remote()
        stream = handle.options(stream=True).remote({"count": 1_000_000})
        assert await anext(aiter(stream)) == {"made": 1}
        os.kill(stepper, signal.SIGKILL)
        killed_at = time.monotonic()
        with pytest.raises(pyserve.DeploymentUnavailable, match="has ended with status -9"):
            async for _ in stream:
                pass
        assert time.monotonic() - killed_at < 5
        await eventually(lambda: _is_replaced(handle, replica), timeout_s=30)
        assert await handle.stepper.remote() != stepper
        assert await handle.remote({"count": 2}) == {"made": 2}


async def test_what_waits_for_a_killed_process_goes_elsewhere() -> None:
    """Two replicas run four calls each; the others wait in them."""
    with running_mesh("tests.mesh.stepping.apps:two_processes") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        calls = [asyncio.ensure_future(handle.remote({"count": 300})) for _ in range(16)]
        await asyncio.to_thread(wait_until, lambda: sum(_of_each(handle, "waiting")) == 8)
        steppers = await asyncio.to_thread(_of_each, handle, "stepper")
        os.kill(steppers[0], signal.SIGKILL)
        found = await asyncio.gather(*calls, return_exceptions=True)
        errors = [each for each in found if isinstance(each, BaseException)]
        assert [type(each) for each in errors] == [pyserve.DeploymentUnavailable] * 4
        assert [each for each in found if each not in errors] == [{"made": 300}] * 12


async def test_the_process_that_steps_ends_with_a_killed_replica() -> None:
    with running_mesh("tests.mesh.stepping.apps:process") as running, attached(running.home):
        handle: Any = pyserve.get_app_handle("default")
        stepper, replica = await handle.stepper.remote(), await handle.pid.remote()
        os.kill(replica, signal.SIGKILL)
        await eventually(lambda: not Path(f"/proc/{stepper}").exists(), timeout_s=30)
        await eventually(lambda: _is_replaced(handle, replica), timeout_s=30)


async def _is_replaced(handle: Any, replica: int) -> bool:
    try:
        found: int = await handle.pid.remote()
    except pyserve.DeploymentUnavailable:  # The one that was killed is still known.
        return False
    return found != replica


def _of_each(handle: Any, method: str) -> list[int]:
    found: list[int] = handle.broadcast(method).result(timeout_s=10)
    return found


async def _last(handle: Any, stream: bool) -> int:
    if not stream:
        version: int = await handle.remote(_STEPS)
        return version
    streamed: list[int] = [each async for each in handle.options(stream=True).remote(_STEPS)]
    return streamed[-1]
