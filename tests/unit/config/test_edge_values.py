"""Every option, with values that nobody should write: taken whole, or refused by its name."""

from __future__ import annotations

import itertools
from dataclasses import fields

import pytest

from pyserve.config import DeploymentOptions
from pyserve.config.parts import BackpressureConfig, BatchingConfig, Resources
from pyserve.config.routing import RequestRouterConfig
from pyserve.config.scaling import AutoscalingConfig
from pyserve.errors import OptionError

_PARTS = {
    "backpressure_config": BackpressureConfig,
    "batching_config": BatchingConfig,
    "autoscaling_config": AutoscalingConfig,
    "resources": Resources,
    "request_router_config": RequestRouterConfig,
}
_RETRY_POLICY = (
    "maxAttempts",
    "initialBackoff",
    "maxBackoff",
    "backoffMultiplier",
    "retryableStatusCodes",
)
_OPTIONS: list[tuple[str, ...]] = [
    *((item.name,) for item in fields(DeploymentOptions) if item.name != "user_config"),
    *((name, item.name) for name, part in _PARTS.items() for item in fields(part)),
    *(("request_router_config", "retryPolicy", name) for name in _RETRY_POLICY),
    ("request_router_config", "retryPolicy"),
    ("request_router_config", "tiers"),
    *((name, "other") for name in ("traffic", "mirror")),
    ("resources", "resources", "thing"),
]
_VALUES = [
    *(float("nan"), float("inf"), float("-inf"), -1, -0.5, 1e9, 1e300, 10**30, 10**5000),
    *(2**31, 2**63, True, False, "", "1", "1e9", "1e9s", "99999999s", b"1", [None], {1: 1}, 1j),
]


class Surprise:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("path", _OPTIONS, ids=".".join)
def test_a_value_is_taken_whole_or_refused_by_name(path: tuple[str, ...]) -> None:
    for value in (*_VALUES, Surprise()):
        given: object = value
        for name in reversed(path[1:]):
            given = {name: given}
        try:
            options = DeploymentOptions.of({path[0]: given})
        except OptionError as error:
            text = str(error)
            assert path[0] in text
            assert len(text) < 700
        else:
            if path not in {("interceptors",), ("deployment_actors",)}:
                assert options == DeploymentOptions.from_json(options.to_json())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *itertools.product(
            [
                ("request_router_config", name)
                for name in (
                    *("slow_start_s", "initial_backoff_s", "max_backoff_s"),
                    *("ejection_interval_s", "backoff_multiplier", "ejection_fall"),
                )
            ],
            [1e9, 2**31, True],
        ),
        *itertools.product(
            [("health_check_period_s",), ("request_timeout_s",), ("startup_timeout_s",)],
            [1e9, float("nan"), True, "1"],
        ),
        (("num_replicas",), 10**6),
        (("max_ongoing_requests",), 2**31),
        (("autoscaling_config", "max_replicas"), 10**6),
    ],
)
def test_what_no_clock_and_no_machine_can_hold_is_refused(
    path: tuple[str, ...], value: object
) -> None:
    given: object = value
    for name in reversed(path[1:]):
        given = {name: given}
    with pytest.raises(OptionError, match=rf"{path[-1]}=.* is not allowed; allowed: .*at most"):
        DeploymentOptions.of({path[0]: given})


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (
            {"request_router_config": {"max_attempts": 3, "retryPolicy": {"maxAttempts": 2}}},
            ["retryPolicy.maxAttempts=2", "max_attempts=3", "keep max_attempts"],
        ),
        (
            {
                "request_router_config": {
                    "initial_backoff_s": 0.1,
                    "retryPolicy": {"initialBackoff": "0.2s"},
                }
            },
            ["retryPolicy.initialBackoff='0.2s'", "initial_backoff_s=0.1"],
        ),
        (
            {"autoscaling_config": {"min_replicas": 3, "max_replicas": 2}},
            ["max_replicas=2", "at least min_replicas=3"],
        ),
        (
            {"num_replicas": 4, "autoscaling_config": {"max_replicas": 8}},
            ["num_replicas=4", "none beside autoscaling_config"],
        ),
        ({"interceptors": b"x"}, ["interceptors=b'x'", "a list"]),
    ],
)
def test_what_contradicts_itself_is_refused(values: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        DeploymentOptions.of(values)

    assert [] == [part for part in parts if part not in str(caught.value)]
