"""Short forms of what ``make soak`` does: restarts, failures and overload under an open load."""

from __future__ import annotations

import pytest

from benchmarks.chaos.scenarios import all_failing, overload, rolling_restart
from tests.support.mesh import running_mesh
from tests.support.session import attached

pytestmark = [pytest.mark.slow, pytest.mark.alone]


async def test_no_unary_call_fails_while_all_replicas_are_restarted() -> None:
    """SIGTERM to each, the next once its successor is announced, under 500 calls a second."""
    with running_mesh("benchmarks.chaos.applications:steady") as mesh, attached(mesh.home):
        outcome = await rolling_restart(mesh.address)
    print(outcome)
    assert [] == outcome.problems
    assert 3 == outcome.figures["restarted"]


@pytest.mark.parity("S-47")
async def test_replicas_that_all_fail_get_little_more_than_the_calls() -> None:
    with running_mesh("benchmarks.chaos.applications:moody") as mesh, attached(mesh.home):
        outcome = await all_failing(seconds=2.0)
    print(outcome)
    assert [] == outcome.problems


async def test_three_times_the_load_leaves_goodput_and_memory_where_they_are() -> None:
    with running_mesh("benchmarks.chaos.applications:narrow") as mesh, attached(mesh.home):
        outcome = await overload(mesh.address, seconds=4.5)
    print(outcome)
    assert [] == outcome.problems
