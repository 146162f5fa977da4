"""Configurations that are made as Ray Serve's are: in the constructor, under its names."""

import warnings
from typing import Any

import pytest

from pyserve.config import (
    AutoscalingConfig,
    AutoscalingPolicy,
    ControllerOptions,
    DeploymentOptions,
    HTTPOptions,
    LoggingConfig,
    RequestRouterConfig,
    TracingConfig,
    gRPCOptions,
)
from pyserve.errors import OptionError


class Picky:
    """Stands for a policy of the user's."""


def decide(context: object) -> int:
    """Stand for a policy that scales."""
    return 1


def test_a_router_class_is_the_policy():
    found = RequestRouterConfig(request_router_class=Picky, request_router_kwargs={"size": 2})

    assert f"{__name__}:Picky" == found.policy
    assert {"size": 2} == found.policy_kwargs


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("ray.serve.request_router.PowerOfTwoChoicesRequestRouter", "p2c"),
        ("ray.serve.experimental.round_robin_router.RoundRobinRouter", "round_robin"),
        ("shop.routing.Mine", "shop.routing:Mine"),
    ],
)
def test_the_path_of_a_router_class_is_understood_in_both_ways_to_write_it(path: str, policy: str):
    assert policy == RequestRouterConfig(request_router_class=path).policy
    mapping = {"request_router_config": {"request_router_class": path}}
    assert policy == DeploymentOptions.of(mapping).request_router_config.policy


def test_a_router_class_beside_a_policy_is_refused():
    with pytest.raises(OptionError, match="two names of one option"):
        RequestRouterConfig(policy="p2c", request_router_class=Picky)


def test_factors_have_older_names_that_warn():
    with pytest.warns(DeprecationWarning, match="smoothing_factor is an older name") as told:
        found = AutoscalingConfig(smoothing_factor=0.5)

    assert (0.5, 0.5) == (found.upscaling_factor, found.downscaling_factor)
    assert __file__ == told[0].filename


def test_an_interval_of_measurements_warns_and_changes_nothing():
    with pytest.warns(DeprecationWarning, match="metrics_interval_s .* no effect"):
        assert AutoscalingConfig() == AutoscalingConfig(metrics_interval_s=5)


@pytest.mark.parametrize(
    "policy", [{"policy_function": decide}, AutoscalingPolicy(policy_function=decide)]
)
def test_a_scaling_policy_is_kept_as_a_path(policy: Any):
    options = DeploymentOptions.of({"autoscaling_config": {"max_replicas": 2, "policy": policy}})

    assert options == DeploymentOptions.from_json(options.to_json())
    assert options.autoscaling_config is not None
    assert AutoscalingPolicy(policy_function=f"{__name__}:decide") == (
        options.autoscaling_config.policy
    )


@pytest.mark.parametrize("value", ["debug", 10, {"log_level": "DEBUG"}])
def test_the_level_of_a_log_is_a_name_or_a_number(value: Any):
    wanted = LoggingConfig(log_level="DEBUG")
    value = {"log_level": value} if isinstance(value, int) else value

    assert wanted == DeploymentOptions.of({"logging_config": value}).logging_config


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"log_level": "LOUD"}, "logging_config.log_level"),
        ({"log_level": True}, "logging_config.log_level"),
        ({"encoding": "XML"}, "logging_config.encoding"),
        ({"logs_dir": ""}, "logging_config.logs_dir"),
        ({"enable_access_log": 1}, "logging_config.enable_access_log"),
        ({"additional_log_standard_attrs": "name"}, "logging_config.additional_log"),
    ],
)
def test_a_wrong_way_to_log_is_refused_by_its_field(fields: dict[str, Any], said: str):
    with pytest.raises(OptionError, match=said):
        LoggingConfig(**fields)


def test_a_version_warns_and_changes_nothing():
    with pytest.warns(DeprecationWarning, match="version is not needed"):
        assert DeploymentOptions() == DeploymentOptions.of({"version": "v2"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"placement_group_bundles": {"CPU": 1}}, "placement_group_bundles"),
        ({"placement_group_bundles": [{"CPU": -1}]}, r"placement_group_bundles\['CPU'\]=-1"),
        ({"placement_group_strategy": "CLOSE"}, "'PACK', 'SPREAD'"),
        ({"placement_group_bundle_label_selector": [{"zone": 1}]}, "strings to strings"),
        ({"max_surge_percent": 101}, "max_surge_percent=101"),
    ],
)
def test_options_of_placement_are_checked(options: dict[str, Any], said: str):
    with pytest.raises(OptionError, match=said):
        DeploymentOptions.of(options)


def test_the_ingress_takes_what_it_has_no_use_for():
    assert HTTPOptions() == HTTPOptions(num_cpus=0, root_url="http://shop.example")
    assert gRPCOptions() == gRPCOptions(enable_reflection=True)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: HTTPOptions(num_cpus=2), "reserves no processors"),
        (lambda: gRPCOptions(enable_reflection=False), "PYSERVE_ACCESS_FILE"),
        (lambda: ControllerOptions(runtime_env={"env_vars": {"A": "1"}}), "set them there"),
        (lambda: ControllerOptions(runtime_env={"pip": []}), "'env_vars' only"),
    ],
)
def test_what_the_ingress_cannot_do_says_what_can(made: Any, said: str):
    with pytest.raises(OptionError, match=said):
        made()


def test_tracing_has_the_defaults_of_ray_serve():
    found = TracingConfig()

    assert (False, "", 0.01) == (found.enabled, found.exporter_import_path, found.sampling_ratio)


def test_options_without_older_names_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DeploymentOptions.from_json(DeploymentOptions().to_json())
