"""What becomes of the answers of policies, and what these are told."""

from typing import Any

import pytest

from pyserve.config import AutoscalingConfig, DeploymentID
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.policies import read_answer, read_answers
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

KEY = DeploymentKey(ApplicationName("shop"), DeploymentName("Model"))
ONE = ReplicaId("r1")


def scaler(**options: Any) -> Scaler:
    options = {"max_replicas": 8, "policy": {"policy_function": "a:b"}, **options}
    return Scaler(KEY, AutoscalingConfig.of("autoscaling_config", options), 1, 0.0)


@pytest.mark.parity("G-27")
def test_an_answer_goes_through_bounds_and_delays():
    found = scaler(downscale_delay_s=5.0)

    up = found.take(30, {"seen": 1}, Fleet([ONE], 1), 1.0)
    down = [found.take(2, None, Fleet([ONE] * 8, 8), now).target for now in (2.0, 6.0, 7.0)]

    assert (8, "a:b says so") == (up.target, up.reason)
    assert [8, 8, 2] == down


@pytest.mark.parity("G-27")
def test_a_context_has_ray_serves_names_and_the_state_of_the_last_answer():
    found = scaler()
    signals = found.signals
    signals.on_replica(ONE, ongoing=3, calls=3, busy_s=0.0, now=9.0)
    signals.on_router("ingress", parked=2, offered=5, now=9.0)
    for now, depth in ((8.0, 2.0), (9.0, 4.0)):
        signals.on_metrics(ONE, {"depth": depth}, now)
    found.take(3, {"seen": 1}, Fleet([ONE], 1), 9.5)

    context = found.context(Fleet([ONE], 3), 10.0, unix_now=1010.0)

    assert (DeploymentID("Model", "shop"), "Model", "shop") == (
        context.deployment_id,
        context.deployment_name,
        context.app_name,
    )
    assert (1, 3, [ONE], 1, 8) == (
        context.current_num_replicas,
        context.target_num_replicas,
        context.running_replicas,
        context.capacity_adjusted_min_replicas,
        context.capacity_adjusted_max_replicas,
    )
    assert (5.0, 2.0, 3.0) == (
        context.total_num_requests,
        context.total_queued_requests,
        context.total_running_requests,
    )
    assert {"depth": {ONE: 3.0}} == context.aggregated_metrics
    assert [(1008.0, 2.0), (1009.0, 4.0)] == [
        (each.timestamp, each.value) for each in context.raw_metrics["depth"][ONE]
    ]
    assert ({"seen": 1}, 1009.5, None, 1010.0) == (
        context.policy_state,
        context.last_scale_up_time,
        context.last_scale_down_time,
        context.current_time,
    )
    assert found.config is context.config


@pytest.mark.parity("G-25")
def test_from_zero_a_call_brings_a_replica_whatever_a_policy_says():
    found = scaler(min_replicas=0, upscale_delay_s=60.0)
    found.signals.on_router("ingress", parked=1, offered=1, now=1.0)

    assert 1 == found.take(0, None, Fleet([], 0), 1.0).target


def test_a_policy_that_fails_changes_nothing_and_is_forgotten_when_it_works_again():
    found = scaler()

    found.on_policy_failed("raised ValueError: none", 1, 2.0)
    failed = found.outcome
    again = found.take(1, None, Fleet([ONE], 1), 3.0)

    assert (1, "the policy a:b raised ValueError: none; the number stays", 2.0) == (
        failed.target,
        failed.reason,
        failed.since,
    )
    assert "a:b says so" == again.reason


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), "3", None, True])
def test_what_is_no_number_of_replicas_is_refused(number: Any):
    with pytest.raises(ValueError, match="it returned"):
        scaler().take(number, None, Fleet([ONE], 1), 1.0)


@pytest.mark.parametrize(
    ("answer", "read"), [((3, {"a": 1}), (3, {"a": 1})), (2.5, (2.5, None)), ((3, None), (3, None))]
)
def test_a_number_comes_with_a_state_or_alone(answer: object, read: object):
    assert read == read_answer(answer)


@pytest.mark.parametrize("answer", [(1, 2, 3), (1, 2)])
def test_another_answer_is_refused(answer: object):
    with pytest.raises(ValueError, match="a number and a dict"):
        read_answer(answer)


@pytest.mark.parity("G-27")
def test_answers_for_an_application_are_read_by_deployment():
    first = DeploymentID("First", "shop")

    assert ({"First": 2}, {"First": {"a": 1}}) == read_answers(({first: 2}, {first: {"a": 1}}))
    assert ({"First": 2}, {}) == read_answers(({"First": 2}, None))
    with pytest.raises(ValueError, match="by DeploymentID"):
        read_answers(3)
