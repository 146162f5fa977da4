"""When the controller acts: as soon as something happens, and as rarely as it may otherwise."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pyserve.control.steps import Steps
from tests.support.waiting import eventually
from tests.unit.control.test_reconfiguring import Mesh, outcome

# A callback that is due at once runs in the next turn of the loop, and what it asks for after that.
_TURNS_MAX = 5


@pytest.fixture
async def mesh() -> AsyncIterator[Mesh]:
    mesh = Mesh()
    watch = mesh.deploy(1)
    await mesh.bring_up()
    assert "deployed" == await outcome(watch)
    yield mesh
    await mesh.controller.close()


@pytest.mark.parity("S-82")
async def test_a_dead_replica_is_replaced_in_the_same_turns_of_the_loop(mesh: Mesh) -> None:
    """No time passes: a controller that looked every 0.1 s would not have looked yet."""
    order = mesh.processes.orders[0]
    mesh.processes.end(order.replica_id, "was killed by SIGKILL")
    for _ in range(_TURNS_MAX):
        await asyncio.sleep(0)

    assert 3 == len(mesh.processes.orders)


@pytest.mark.parity("S-82")
@pytest.mark.parametrize("interval_s", [None, 0.01])
async def test_an_interval_makes_it_look_also_when_nothing_has_happened(
    interval_s: float | None,
) -> None:
    """The state changes behind its back, so that only a look can find it."""
    mesh = Mesh(interval_s)
    watch = mesh.deploy(1)
    await mesh.bring_up()
    assert "deployed" == await outcome(watch)
    state = mesh.controller.state
    state.on_exited(next(iter(state.replicas)), summary="is gone", now=0.0)

    if interval_s is None:
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
        assert 2 == len(mesh.processes.orders)
    else:
        await eventually(lambda: len(mesh.processes.orders) == 3)
    await mesh.controller.close()


def timers_of_steps(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.TimerHandle]:
    """Return a list that gets the timers of all steps in this loop."""
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_at = loop.call_at

    def record(when: float, callback: Any, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        handle = call_at(when, callback, *arguments, **options)
        if isinstance(getattr(callback, "__self__", None), Steps):
            timers.append(handle)
        return handle

    monkeypatch.setattr(loop, "call_at", record)
    return timers


class Turns:
    """Steps of which each says when the next one is due, and what was asked of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.published = 0
        self.again_at: float | None = None
        self.publish_at: float | None = None
        self.steps = Steps(self._step, self._publish, lambda: self.publish_at)
        self.timers = timers_of_steps(monkeypatch)

    def _step(self, _now: float) -> list[float | None]:
        self.count += 1
        return [None, self.again_at]

    def _publish(self, _now: float) -> None:
        self.published += 1
        self.publish_at = None


async def test_what_happens_in_one_turn_of_the_loop_is_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(monkeypatch)
    for _ in range(100):
        turns.steps.ask()
    await turns.steps.next()
    assert (1, []) == (turns.count, turns.timers)


async def test_what_is_due_for_routers_only_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(monkeypatch)
    turns.publish_at = asyncio.get_running_loop().time() + 0.001
    turns.steps.ask()
    # Both may come in one turn of the loop, before anybody who waited for the first one.
    await eventually(lambda: turns.published)
    assert (1, 1) == (turns.count, turns.published)


async def test_while_steps_have_taken_much_events_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(monkeypatch)
    turns.steps.ask()
    await turns.steps.next()
    monkeypatch.setattr(time, "thread_time", itertools.count(step=1.0).__next__)
    turns.steps.ask()
    await turns.steps.next()
    before = asyncio.get_running_loop().time()
    for _ in range(100):
        turns.steps.ask()
    (due,) = turns.timers
    # As long as it may wait at most, whatever the last one has taken.
    assert before < due.when() < before + 0.06
    await turns.steps.next()
    assert 3 == turns.count


@pytest.mark.parity("S-82")
@pytest.mark.parametrize("interval_s", [None, 30.0])
async def test_a_mesh_in_which_nothing_happens_has_no_timer_but_the_interval(
    interval_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Liveness checks run besides; a missing sign of life asks for a step."""
    loop, timers = asyncio.get_running_loop(), timers_of_steps(monkeypatch)
    mesh = Mesh(interval_s)
    watch = mesh.deploy(1)
    await mesh.bring_up()
    assert "deployed" == await outcome(watch)
    # The last change has been published.
    await eventually(lambda: mesh.controller.registry.next_wakeup() is None)

    left = [each for each in timers if not each.cancelled() and each.when() > loop.time()]
    if interval_s is None:
        assert [] == left
    else:
        (only,) = left
        assert pytest.approx(loop.time() + interval_s, abs=5) == only.when()
    await mesh.controller.close()
