"""Replicas that come and go with the load of a mesh, without a call that fails."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pyserve
from pyserve.driver.status import DeploymentStatusOverview
from tests.mesh.autoscaling.apps import FAST, Sleeper
from tests.mesh.autoscaling.conftest import Run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_START_TIMEOUT_S = 40.0


def found(name: str = "Sleeper") -> DeploymentStatusOverview:
    return pyserve.status().applications["default"].deployments[name]


def serving() -> int:
    return sum(each.state == "RUNNING" for each in found().replicas)


@pytest.mark.parity("G-07", "G-24", "G-26", "G-65")
def test_a_step_is_decided_within_a_second_and_goes_down_again(run: Run) -> None:
    config = {**FAST, "max_replicas": 3, "target_ongoing_requests": 2}
    handle = run(Sleeper.options(autoscaling_config=config).bind())
    assert 1 == found().wanted

    with ThreadPoolExecutor(6) as callers:
        begun = time.monotonic()
        calls = [handle.remote(0.2) for _ in range(6)]
        ended = [callers.submit(_keep_calling, handle, call, begun + 15) for call in calls]
        wait_until(lambda: found().wanted == 3, 20.0)
        took_s = time.monotonic() - begun
        growing = found()
        wait_until(lambda: serving() == 3, _START_TIMEOUT_S)
        assert {"slept"} == {answer for each in ended for answer in each.result()}

    # The machine does other things too; a load that is looked at for longer would take more.
    assert 10.0 >= took_s
    assert "UPSCALING" == growing.status
    assert "2 for each replica" in growing.message
    wait_until(lambda: found().wanted == 1 and len(found().replicas) == 1, 30.0)
    scaling = found().scaling
    assert scaling is not None
    assert (1, 1, 3, False) == (
        scaling.target,
        scaling.min_replicas,
        scaling.max_replicas,
        scaling.is_advisory,
    )
    assert 0 < scaling.ready_after_s < _START_TIMEOUT_S
    assert "HEALTHY" == found().status


def _keep_calling(handle: Any, first: Any, until: float) -> set[str]:
    answers = {first.result(timeout_s=30)}
    while time.monotonic() < until and serving_less_than_three():
        answers.add(handle.remote(0.2).result(timeout_s=30))
    return answers


def serving_less_than_three() -> bool:
    return serving() < 3


@pytest.mark.parity("G-25")
def test_from_zero_the_first_call_waits_for_the_first_replica(run: Run) -> None:
    config = {**FAST, "min_replicas": 0, "max_replicas": 2, "downscale_to_zero_delay_s": 0.5}
    handle = run(Sleeper.options(autoscaling_config=config).bind())
    wait_until(lambda: found().wanted == 0 and not found().replicas, 20.0)
    assert "HEALTHY" == found().status

    call = handle.remote(0.0)

    wait_until(lambda: found().wanted == 1, 20.0)
    assert "slept" == call.result(timeout_s=_START_TIMEOUT_S)
    wait_until(lambda: not found().replicas, 20.0)


@pytest.mark.parity("G-02")
def test_auto_follows_the_load(run: Run) -> None:
    handle = run(Sleeper.options(num_replicas="auto").bind())

    calls = [handle.remote(2.0) for _ in range(4)]

    wait_until(lambda: found().wanted == 2, 20.0)
    scaling = found().scaling
    assert scaling is not None
    assert (1, 100) == (scaling.min_replicas, scaling.max_replicas)
    assert ["slept"] * 4 == [call.result(timeout_s=_START_TIMEOUT_S) for call in calls]


@pytest.mark.parity("G-22")
def test_other_bounds_keep_the_replicas(run: Run) -> None:
    app = Sleeper.options(autoscaling_config={"max_replicas": 2})
    handle = run(app.bind())
    before = handle.replica.remote().result(timeout_s=30)

    run(app.options(autoscaling_config={"min_replicas": 2, "max_replicas": 3}).bind())

    wait_until(lambda: serving() == 2, _START_TIMEOUT_S)
    assert before in {each.replica_id for each in found().replicas}


def test_a_deploy_in_the_middle_of_a_load_keeps_the_number(run: Run) -> None:
    config = {**FAST, "max_replicas": 2, "downscale_delay_s": 60.0}
    handle = run(Sleeper.options(autoscaling_config=config).bind())
    calls = [handle.remote(4.0) for _ in range(4)]
    wait_until(lambda: serving() == 2, _START_TIMEOUT_S)
    assert ["slept"] * 4 == [call.result(timeout_s=30) for call in calls]

    run(Sleeper.options(autoscaling_config=config, max_constructor_retry_count=3).bind())

    assert (2, 2) == (found().wanted, serving())


@pytest.mark.parity("G-24")
def test_an_advice_is_published_and_not_followed(run: Run) -> None:
    config = {**FAST, "max_replicas": 3, "advisory": True}
    handle = run(Sleeper.options(autoscaling_config=config).bind())

    calls = [handle.remote(4.0) for _ in range(4)]

    wait_until(lambda: (scaling := found().scaling) and scaling.target == 2, 20.0)
    scaling = found().scaling
    assert scaling is not None
    assert scaling.is_advisory
    assert "calls at once" in scaling.reason
    assert (1, 1) == (found().wanted, len(found().replicas))
    assert ["slept"] * 4 == [call.result(timeout_s=30) for call in calls]


def test_a_target_for_the_wait_brings_replicas(run: Run) -> None:
    config = {"max_replicas": 2, "target_wait_s": 0.05, "target_ongoing_requests": 1}
    app = Sleeper.options(max_ongoing_requests=1, autoscaling_config=config)
    handle = run(app.bind())
    for _ in range(3):  # How long a call takes is learnt first.
        assert "slept" == handle.remote(0.2).result(timeout_s=30)

    calls = [handle.remote(0.2) for _ in range(20)]

    wait_until(lambda: serving() == 2, _START_TIMEOUT_S)
    assert ["slept"] * 20 == [call.result(timeout_s=30) for call in calls]
    scaling = found().scaling
    assert scaling is not None
    assert "target_wait_s=0.05" in scaling.reason
