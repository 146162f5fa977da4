"""Replicas of a continuously batched class that come and go with the times of its values."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import pyserve
from pyserve.driver.status import DeploymentStatusOverview
from tests.mesh.autoscaling.apps import FAST, Stepper
from tests.mesh.autoscaling.conftest import Run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_START_TIMEOUT_S = 40.0
_CALLERS = 6


def found() -> DeploymentStatusOverview:
    return pyserve.status().applications["default"].deployments["Stepper"]


@pytest.mark.parity("G-24")
def test_the_time_to_the_first_value_brings_replicas_and_they_leave_again(run: Run) -> None:
    config = {**FAST, "max_replicas": 2, "target_time_to_first_value_s": 0.1}
    handle = run(Stepper.options(autoscaling_config=config).bind()).options(stream=True)
    stop = threading.Event()

    def keep_calling() -> set[tuple[int, ...]]:
        streams = set()
        while not stop.is_set():
            streams.add(tuple(handle.remote(5)))
        return streams

    with ThreadPoolExecutor(_CALLERS) as callers:
        # One request at a time, a tenth of a second for each: five others wait before a new one.
        ended = [callers.submit(keep_calling) for _ in range(_CALLERS)]
        try:
            wait_until(lambda: found().wanted == 2, 20.0)
            growing = found().message
            # One steps in each replica, and each costs 1.
            wait_until(lambda: (costs := found().costs) and costs.running and costs.waiting, 20.0)
            wait_until(
                lambda: [each.state for each in found().replicas] == ["RUNNING"] * 2,
                _START_TIMEOUT_S,
            )
        finally:
            stop.set()
        assert {(1, 1, 1, 1, 0)} == set().union(*(each.result() for each in ended))

    assert "s to the first value, 0.1 s is the target" in growing
    wait_until(lambda: found().wanted == 1 and len(found().replicas) == 1, 30.0)
