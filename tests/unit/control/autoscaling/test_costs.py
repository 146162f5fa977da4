"""The number of replicas follows what calls cost, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.errors import OptionError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

KEY = DeploymentKey(ApplicationName("shop"), DeploymentName("Model"))
ONE, TWO = ReplicaId("r1"), ReplicaId("r2")


def config(**options: Any) -> AutoscalingConfig:
    options = {"max_replicas": 8, "target_ongoing_cost": 1000, "downscale_delay_s": 5.0, **options}
    return AutoscalingConfig.of("autoscaling_config", options)


def test_one_expensive_call_wants_more_replicas_than_many_cheap_ones() -> None:
    scaler = Scaler(KEY, config(), 1, 0.0)
    scaler.signals.on_replica(ONE, ongoing=40, calls=40, busy_s=0.0, now=1.0, cost=40.0)
    assert scaler.decide(Fleet([ONE], 1), 2.0).target == 1
    scaler.signals.on_replica(ONE, ongoing=1, calls=41, busy_s=0.0, now=3.0, cost=3_500.0)
    outcome = scaler.decide(Fleet([ONE], 1), 4.0)
    assert outcome.target == 4
    assert outcome.reason == "3500.0 is what the calls at once cost, 1000 for each replica"


def test_it_shrinks_after_the_delay_when_calls_have_become_cheap() -> None:
    scaler = Scaler(KEY, config(look_back_period_s=2.0), 2, 0.0)
    for replica in (ONE, TWO):
        scaler.signals.on_replica(replica, ongoing=9, calls=9, busy_s=0.0, now=0.0, cost=90.0)
    fleet = Fleet([ONE, TWO], 2)
    assert [scaler.decide(fleet, now).target for now in (3.0, 7.0, 8.0)] == [2, 2, 1]


def test_calls_that_wait_in_routers_count_as_the_mean_of_the_others() -> None:
    scaler = Scaler(KEY, config(), 1, 0.0)
    scaler.signals.on_replica(ONE, ongoing=2, calls=2, busy_s=0.0, now=1.0, cost=1_000.0)
    scaler.signals.on_router("ingress", parked=4, offered=6, now=1.0)
    assert scaler.signals.total_cost == 3_000.0
    assert scaler.decide(Fleet([ONE], 1), 2.0).target == 3


def test_from_nothing_the_first_call_wants_a_replica() -> None:
    scaler = Scaler(KEY, config(min_replicas=0), 0, 0.0)
    scaler.signals.on_router("ingress", parked=1, offered=1, now=1.0)
    assert scaler.decide(Fleet([], 0), 1.0).target == 1


@pytest.mark.parametrize(
    "options",
    [
        {"target_ongoing_cost": 0},
        {"target_ongoing_cost": -1},
        {"target_wait_s": 1.0},
        {"policy": {"policy_function": "a:b"}},
    ],
)
def test_a_target_in_cost_is_above_nothing_and_alone(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="target_ongoing_cost"):
        config(**options)
