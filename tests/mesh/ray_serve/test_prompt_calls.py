"""A call leaves when it is made, whatever the loop of its caller does afterwards."""

from __future__ import annotations

import time

import pytest

from tests.mesh.ray_serve.apps import Clock, Holding
from tests.mesh.ray_serve.conftest import Run

# Both processes read the clock of the machine; a busy one takes a while.
_PROMPT_S = 1.5


@pytest.mark.slow
def test_a_call_leaves_though_its_caller_holds_the_loop(run_in_mesh: Run) -> None:
    """In local testing mode all deployments share the loop that is held."""
    handle = run_in_mesh(Holding.bind(Clock.bind()))
    # The first one dials; after a pause, and in a row, the thread that sends sleeps or does not.
    for _ in range(3):
        assert handle.hold.remote().result(timeout_s=30) < _PROMPT_S
    time.sleep(0.3)
    assert handle.hold.remote().result(timeout_s=30) < _PROMPT_S


def test_a_call_leaves_though_nobody_awaits_it(run: Run) -> None:
    handle = run(Holding.bind(Clock.bind()))
    assert handle.forget.remote().result(timeout_s=30) < _PROMPT_S
