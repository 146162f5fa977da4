"""Which built-in error a wrong option is: of a wrong type, or of a wrong value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyserve
from pyserve.config import (
    AutoscalingConfig,
    GangSchedulingConfig,
    HTTPOptions,
    LoggingConfig,
    RequestRouterConfig,
)
from pyserve.config import gRPCOptions as GrpcOptions
from pyserve.errors import OptionError
from tests.mesh.apps.small import Small

Make = Callable[..., Any]


async def batched(items: list[int]) -> list[int]:
    return items


async def load(model_id: str) -> str:
    return model_id


def batch(**options: Any) -> object:
    return pyserve.batch(**options)(batched)


def multiplexed(**options: Any) -> object:
    return pyserve.multiplexed(**options)(load)


def handle(**options: Any) -> object:
    return pyserve.run(Small.bind(), local_testing_mode=True).options(**options)


WRONG_TYPES: list[tuple[Make, dict[str, object]]] = [
    (Small.options, {"name": 1}),
    (Small.options, {"num_replicas": 2.0}),
    (Small.options, {"num_replicas": True}),
    (Small.options, {"max_ongoing_requests": "8"}),
    (Small.options, {"graceful_shutdown_timeout_s": "8"}),
    (Small.options, {"health_check_period_s": None}),
    (Small.options, {"ray_actor_options": 5}),
    (Small.options, {"resources": {"num_gpus": "1"}}),
    (Small.options, {"resources": {"resources": ["tpu"]}}),
    (Small.options, {"autoscaling_config": 3}),
    (Small.options, {"logging_config": 3}),
    (Small.options, {"placement_group_bundles": 3}),
    (Small.options, {"placement_group_strategy": 3}),
    (Small.options, {"deployment_actors": 3}),
    (Small.options, {"interceptors": 3}),
    (Small.options, {"env_vars": {"A": 1}}),
    (Small.options, {"pip": 3}),
    (Small.options, {"no_such_option": 3}),
    (Small.options, {"route_prefix": "/"}),
    (Small.options, {"autoscaling_config": {"no_such_option": 3}}),
    (batch, {"max_batch_size": "8"}),
    (batch, {"max_batch_size": 1.5}),
    (batch, {"max_concurrent_batches": None}),
    (batch, {"batch_wait_timeout_s": "soon"}),
    (batch, {"batch_size_fn": 3}),
    (multiplexed, {"max_num_models_per_replica": "8"}),
    (multiplexed, {"max_bytes": 1.5}),
    (handle, {"stream": 3}),
    (handle, {"timeout_s": "1"}),
    (handle, {"session_id": 3}),
    (handle, {"method_name": 3}),
    (handle, {"priority": 1.5}),
    (handle, {"no_such_option": 3}),
    (AutoscalingConfig, {"min_replicas": "1"}),
    (GangSchedulingConfig, {"gang_size": "2"}),
    (HTTPOptions, {"port": "8000"}),
    (HTTPOptions, {"root_path": 3}),
    (GrpcOptions, {"grpc_servicer_functions": 3}),
    (GrpcOptions, {"grpc_servicer_functions": [3]}),
    (GrpcOptions, {"enable_reflection": "yes"}),
    (LoggingConfig, {"log_level": 3.5}),
    (LoggingConfig, {"additional_log_standard_attrs": 3}),
    (RequestRouterConfig, {"tiers": 3}),
    (RequestRouterConfig, {"policy": 3}),
]
WRONG_VALUES: list[tuple[Make, dict[str, object]]] = [
    (Small.options, {"name": "a name"}),
    (Small.options, {"num_replicas": -1}),
    (Small.options, {"num_replicas": "automatic"}),
    (Small.options, {"health_check_period_s": 0}),
    (Small.options, {"graceful_shutdown_timeout_s": float("nan")}),
    (Small.options, {"placement_group_strategy": "ROUND"}),
    (Small.options, {"serializer": ""}),
    (batch, {"max_batch_size": 0}),
    (batch, {"batch_wait_timeout_s": -1}),
    (multiplexed, {"max_num_models_per_replica": 0}),
    (handle, {"timeout_s": 0}),
    (handle, {"method_name": "_hidden"}),
    (AutoscalingConfig, {"min_replicas": -1}),
    (HTTPOptions, {"port": 70_000}),
    (LoggingConfig, {"log_level": "LOUD"}),
]


def made(make: Make, options: dict[str, object]) -> object:
    """Return what the options make; configurations are read as mappings, as a user writes them."""
    of = getattr(make, "of", None)
    return make(**options) if of is None else of("options", options)


def shown(value: object) -> str:
    """Name a case; without the addresses of functions, which differ from process to process."""
    return getattr(value, "__qualname__", repr(value))


@pytest.fixture(scope="module", autouse=True)
def _ends() -> Any:
    yield
    pyserve.shutdown()


@pytest.mark.parametrize(("make", "options"), WRONG_TYPES, ids=shown)
def test_a_wrong_type_or_name_is_a_type_error_and_an_option_error(
    make: Make, options: dict[str, object]
) -> None:
    with pytest.raises(OptionError) as caught:
        made(make, options)
    assert isinstance(caught.value, TypeError), caught.value
    assert isinstance(caught.value, ValueError), "and what it was before"


@pytest.mark.parametrize(("make", "options"), WRONG_VALUES, ids=shown)
def test_a_wrong_value_is_none(make: Make, options: dict[str, object]) -> None:
    with pytest.raises(OptionError) as caught:
        made(make, options)
    assert not isinstance(caught.value, TypeError), caught.value


def test_what_is_no_target_is_told() -> None:
    with pytest.raises(TypeError, match=r"no RunTarget; write RunTarget\("):
        pyserve.run_many([Small.bind()])  # type: ignore[list-item]
