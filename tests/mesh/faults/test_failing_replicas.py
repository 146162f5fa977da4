"""One of three replicas fails fast, stops, or dies, and its deployment goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

import pyserve
from tests.support.mesh import running_mesh
from tests.support.session import attached
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.alone]

# A stopped replica gets nothing new after this.
_SILENCE_S = 2.0


@pytest.fixture
def moody() -> Iterator[pyserve.DeploymentHandle]:
    """Return a handle of a deployment with three replicas, in a mesh of its own."""
    with running_mesh("tests.mesh.apps.moody:app") as running, attached(running.home):
        yield pyserve.DeploymentHandle("Moody", "default")


async def everybody(moody: pyserve.DeploymentHandle) -> set[int]:
    """Wait until each replica has answered; return their processes."""
    seen: set[int] = set()

    async def all_seen() -> bool:
        seen.update(await asyncio.gather(*(moody.remote(0.01) for _ in range(30))))
        return len(seen) == 3

    await eventually(all_seen)
    return seen


async def outcomes(handle: pyserve.DeploymentHandle, count: int) -> list[object]:
    """Make so many calls one after the other; return answers and exceptions."""
    found: list[object] = []
    for _ in range(count):
        found += await asyncio.gather(handle.remote(), return_exceptions=True)
    return found


@pytest.mark.parity("S-69")
async def test_a_replica_that_fails_fast_attracts_no_calls(
    moody: pyserve.DeploymentHandle,
) -> None:
    await everybody(moody)
    sick = await moody.sicken.remote()
    answers: Counter[int] = Counter()
    failures = 0
    for _ in range(60):
        results = await asyncio.gather(
            *(moody.remote(0.005) for _ in range(5)), return_exceptions=True
        )
        failures += sum(isinstance(result, ValueError) for result in results)
        answers.update(result for result in results if isinstance(result, int))
    assert 300 == failures + answers.total()
    assert 0 == answers[sick]
    # Three in a row, and those that were under way then.
    assert 3 <= failures <= 15


@pytest.mark.parity("S-69")
async def test_the_variables_say_when_a_replica_is_out_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of this process, which has the router."""
    monkeypatch.setenv("PYSERVE_EJECTION_FALL", "2")
    monkeypatch.setenv("PYSERVE_EJECTION_RISE", "1")
    monkeypatch.setenv("PYSERVE_EJECTION_INTERVAL_S", "2s")
    with running_mesh("tests.mesh.apps.moody:plain") as running, attached(running.home):
        handle: pyserve.DeploymentHandle = pyserve.DeploymentHandle("Moody", "default")
        await everybody(handle)
        sick = await handle.sicken.remote()
        begun = time.monotonic()
        failures = 0
        while failures < 2:
            failures += isinstance((await outcomes(handle, 1))[0], ValueError)
        answered: list[object] = []
        # Not for longer than it is out, however slowly this machine calls.
        while time.monotonic() - begun < 1.5 and len(answered) < 60:
            answered += await outcomes(handle, 1)
        assert [] == [each for each in answered if not isinstance(each, int)]
        await handle.broadcast("cure")

        async def is_back() -> bool:
            return sick in await outcomes(handle, 10)

        await eventually(is_back)
        assert time.monotonic() - begun >= 2.0


@pytest.mark.parity("S-69")
async def test_a_stopped_replica_gets_nothing_and_comes_back(
    moody: pyserve.DeploymentHandle,
) -> None:
    stopped = min(await everybody(moody))
    os.kill(stopped, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        early = []
        while time.monotonic() - begun < _SILENCE_S:
            early.append(asyncio.ensure_future(moody.remote(0.01)))
            await asyncio.sleep(0.02)
        # A call that went there would have no answer at all.
        async with asyncio.timeout(30):
            later = await asyncio.gather(*(moody.remote(0.01) for _ in range(60)))
        assert stopped not in later
        ends = await asyncio.gather(*early, return_exceptions=True)
        lost = [end for end in ends if not isinstance(end, int)]
        assert len(lost) <= 20, "only calls that were sent there fail, at most as many as it takes"
        assert stopped not in ends
    finally:
        os.kill(stopped, signal.SIGCONT)

    async def is_back() -> bool:
        return stopped in await asyncio.gather(*(moody.remote(0.01) for _ in range(30)))

    await eventually(is_back)


@pytest.mark.parity("S-47")
async def test_calls_that_may_be_repeated_survive_a_killed_replica(
    moody: pyserve.DeploymentHandle,
) -> None:
    killed = min(await everybody(moody))
    handle = moody.options(idempotent=True)
    calls = [asyncio.ensure_future(handle.remote(1.0)) for _ in range(30)]
    await asyncio.sleep(0)
    await moody.remote(0.1)
    os.kill(killed, signal.SIGKILL)
    answers = Counter(await asyncio.gather(*calls))
    assert 30 == answers.total()
    assert 0 == answers[killed]
