"""``autoscaling_config`` and ``num_replicas="auto"``: defaults, what is refused, what is kept."""

from typing import Any

import pytest

from pyserve.config import AutoscalingConfig, AutoscalingContext, DeploymentID, DeploymentOptions
from pyserve.errors import OptionError
from pyserve.types import ReplicaId


@pytest.mark.parity("G-23")
def test_names_and_defaults_are_ray_serves_but_for_the_delay_of_growing():
    config = AutoscalingConfig()

    assert (1, None, 1, 2.0) == (
        config.min_replicas,
        config.initial_replicas,
        config.max_replicas,
        config.target_ongoing_requests,
    )
    assert (30.0, 0.0, 600.0, None) == (
        config.look_back_period_s,
        config.upscale_delay_s,
        config.downscale_delay_s,
        config.downscale_to_zero_delay_s,
    )
    assert (1.0, 1.0, "mean") == (
        config.upscaling_factor,
        config.downscaling_factor,
        config.aggregation_function,
    )


@pytest.mark.parity("G-02")
@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ({"num_replicas": "auto"}, (1, 100, 2.0)),
        (
            {"num_replicas": "auto", "autoscaling_config": {"target_ongoing_requests": 5}},
            (1, 100, 5.0),
        ),
        (
            {"num_replicas": "auto", "autoscaling_config": AutoscalingConfig(min_replicas=0)},
            (0, 100, 2.0),
        ),
        ({"num_replicas": "auto", "autoscaling_config": {"max_replicas": 7}}, (1, 7, 2.0)),
        ({"autoscaling_config": {"max_replicas": 7}}, (1, 7, 2.0)),
    ],
)
def test_auto_has_a_high_maximum_unless_one_is_given(values: dict[str, Any], bounds: object):
    options = DeploymentOptions.of(values)

    for each in (options, DeploymentOptions.from_json(options.to_json())):
        assert each.scaling is not None
        assert bounds == (
            each.scaling.min_replicas,
            each.scaling.max_replicas,
            each.scaling.target_ongoing_requests,
        )


def test_a_number_beside_nothing_does_not_scale():
    assert DeploymentOptions(num_replicas=3).scaling is None


@pytest.mark.parity("G-25")
@pytest.mark.parametrize(
    ("config", "first"),
    [({"min_replicas": 0}, 1), ({"min_replicas": 0, "initial_replicas": 0}, 1), ({}, 1)],
)
def test_a_first_replica_starts_in_any_case(config: dict[str, Any], first: int):
    config = {"max_replicas": 4, **config}

    assert first == DeploymentOptions.of({"autoscaling_config": config}).initial_num_replicas


@pytest.mark.parity("G-23")
@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({"min_replicas": 5, "max_replicas": 2}, ["max_replicas=2", "at least min_replicas=5"]),
        ({"max_replicas": 3, "initial_replicas": 4}, ["initial_replicas=4"]),
        ({"target_ongoing_requests": 0}, ["target_ongoing_requests=0"]),
        ({"look_back_period_s": 0}, ["look_back_period_s=0"]),
        ({"upscale_delay_s": -1}, ["upscale_delay_s=-1"]),
        ({"downscale_delay_s": "1"}, ["downscale_delay_s='1'"]),
        ({"upscaling_factor": -2}, ["upscaling_factor=-2"]),
        ({"aggregation_function": "sum"}, ["aggregation_function='sum'", "'mean'"]),
        ({"target_wait_s": 0}, ["target_wait_s=0", "seconds above 0"]),
        ({"target_wait_s": 1, "target_p99_s": 1}, ["target_p99_s=1", "none beside target_wait_s"]),
        (
            {"target_wait_s": 1, "policy": {"policy_function": "a:b"}},
            ["target_wait_s=1", "none beside a policy"],
        ),
        ({"advisory": "yes"}, ["advisory='yes'"]),
        ({"max_replica": 2}, ["'max_replica'", "did you mean 'max_replicas'"]),
        ({"policy": {"policy_function": "nowhere"}}, ["policy_function='nowhere'", "module:name"]),
        ({"policy": {"policy_function": lambda ctx: 1}}, ["policy_function=", "a module has"]),
    ],
)
def test_a_refusal_says_where_what_and_what_instead(config: dict[str, Any], parts: list[str]):
    with pytest.raises(OptionError) as caught:
        DeploymentOptions.of({"autoscaling_config": config})

    assert [] == [part for part in parts if part not in str(caught.value)]


def test_with_a_target_for_the_latency_the_delay_of_shrinking_is_learnt():
    assert AutoscalingConfig(target_p99_s=0.2).downscale_delay_s is None
    assert 5.0 == AutoscalingConfig(target_wait_s=0.2, downscale_delay_s=5.0).downscale_delay_s


@pytest.mark.parity("G-27")
def test_a_context_makes_its_values_when_somebody_looks():
    made: list[str] = []

    def total() -> float:
        made.append("total")
        return 8.0

    context = AutoscalingContext(
        deployment_id=DeploymentID("Model", "shop"),
        deployment_name="Model",
        app_name="shop",
        current_num_replicas=1,
        target_num_replicas=2,
        running_replicas=[ReplicaId("r")],
        total_num_requests=total,
        total_queued_requests=3.0,
        aggregated_metrics=None,
        raw_metrics=None,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=4,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=None,
        config=None,
    )

    assert [] == made
    assert (8.0, 5.0, 8.0) == (
        context.total_num_requests,
        context.total_running_requests,
        context.total_num_requests,
    )
    assert ["total"] == made
    assert {} == context.aggregated_metrics
