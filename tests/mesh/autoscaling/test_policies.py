"""Policies of the user's, metrics of the user's, and a scaler outside of the mesh."""

from __future__ import annotations

import pytest

import pyserve
from pyserve.errors import MeshError
from tests.mesh.autoscaling.apps import FAST, Counting, Metered, Sleeper, by_metric, raising
from tests.mesh.autoscaling.conftest import Run
from tests.mesh.autoscaling.test_load import found
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_START_TIMEOUT_S = 40.0


@pytest.mark.parity("G-27", "G-28")
def test_a_function_decides_by_metrics_of_the_replicas(run: Run) -> None:
    config = {**FAST, "max_replicas": 4, "policy": {"policy_function": by_metric}}
    handle = run(Metered.options(autoscaling_config=config).bind())

    handle.remote(3).result(timeout_s=30)

    wait_until(lambda: found("Metered").wanted == 3, 30.0)


@pytest.mark.parity("G-27")
def test_a_class_has_arguments_and_its_state(run: Run) -> None:
    policy = {
        "policy_function": f"{Counting.__module__}:Counting",
        "policy_kwargs": {"most": 2},
    }
    run(Sleeper.options(autoscaling_config={"max_replicas": 5, "policy": policy}).bind())

    wait_until(lambda: found().wanted == 2, 30.0)
    scaling = found().scaling
    assert scaling is not None
    assert "Counting says so" in scaling.reason


@pytest.mark.parity("G-27")
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (raising, "raised LookupError: nothing known of Sleeper"),
        ("tests.mesh.autoscaling.apps:missing", "missing"),
    ],
)
def test_one_that_fails_changes_nothing_and_is_told_of(run: Run, policy: object, said: str) -> None:
    config = {**FAST, "max_replicas": 4, "policy": {"policy_function": policy}}
    handle = run(Sleeper.options(autoscaling_config=config).bind())

    wait_until(lambda: (scaling := found().scaling) and said in scaling.reason, 30.0)
    assert "slept" == handle.remote(0.0).result(timeout_s=30)
    assert 1 == found().wanted


@pytest.mark.parity("G-29")
def test_what_scales_by_itself_is_not_scaled_from_outside(run: Run) -> None:
    app = Sleeper.options(autoscaling_config={"max_replicas": 4}).bind()

    with pytest.raises(MeshError, match="'Sleeper' has an autoscaling_config"):
        run(app, external_scaler_enabled=True)

    assert "default" not in pyserve.status().applications
