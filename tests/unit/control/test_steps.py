"""When the controller acts: as soon as something happens, and as seldom as it may otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

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
    mesh.processes.on_exit[order.replica_id]("was killed by SIGKILL")
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
