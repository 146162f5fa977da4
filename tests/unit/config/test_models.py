"""Configurations written down, read and copied as pydantic's models are."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import BaseModel

from pyserve.config import (
    AutoscalingConfig,
    BackpressureConfig,
    BatchingConfig,
    ControllerOptions,
    DeploymentActorConfig,
    DeploymentMode,
    DeploymentOptions,
    GangSchedulingConfig,
    HTTPOptions,
    LoggingConfig,
    ProxyLocation,
    RequestRouterConfig,
    Resources,
    TracingConfig,
)
from pyserve.config import gRPCOptions as GrpcOptions
from pyserve.config.parts import Part
from pyserve.config.scaling import AutoscalingPolicy
from pyserve.errors import OptionError

MADE: list[Part] = [
    AutoscalingConfig(max_replicas=4, policy=AutoscalingPolicy(policy_function="shop:decide")),
    AutoscalingPolicy(policy_function="shop:decide", policy_kwargs={"most": [1, 2]}),
    BackpressureConfig(status_code=429, retry_after_s=3),
    BatchingConfig(max_batch_size=4, methods=("a", "b")),
    ControllerOptions(),
    DeploymentActorConfig(name="cache", init_args=(1,), init_kwargs={"b": 2}),
    GangSchedulingConfig(gang_size=2),
    HTTPOptions(port=8001, location=DeploymentMode.HeadOnly, root_path="/gateway"),
    GrpcOptions(grpc_servicer_functions=["shop_pb2_grpc.add_ShopServicer_to_server"]),
    LoggingConfig(log_level="DEBUG", additional_log_standard_attrs=["name"]),
    RequestRouterConfig(policy="p2c", max_attempts=3, retryable_status_codes=("UNAVAILABLE",)),
    Resources(num_gpus=0.5, resources={"tpu": 1}),
    TracingConfig(enabled=True, sampling_ratio=0.5),
]


@pytest.mark.parametrize("config", MADE, ids=lambda config: type(config).__name__)
def test_what_is_written_down_is_read_as_the_same(config: Part) -> None:
    kind = type(config)

    assert config == kind.model_validate(config.model_dump())
    assert config == kind.model_validate_json(config.model_dump_json())
    assert config == kind.parse_obj(config.dict()) == kind.parse_raw(config.json(indent=1))
    assert config == kind.model_validate(config.dict(exclude_unset=True))
    assert config == kind.model_validate(config.dict(exclude_none=True))
    assert config == config.copy() == config.model_copy(deep=True)
    assert config == kind(**config.model_dump())
    assert config is kind.parse_obj(config)


def test_every_configuration_is_tried() -> None:
    assert {each.__name__ for each in Part.__subclasses__()} == {
        type(each).__name__ for each in MADE
    }


def test_fields_are_chosen_as_pydantic_does() -> None:
    config = BackpressureConfig(status_code=429)

    assert {"status_code": 429, "retry_after_s": None} == config.dict()
    assert {"status_code": 429} == config.dict(exclude_none=True)
    assert {"status_code": 429} == config.dict(exclude_unset=True)
    assert {"retry_after_s": None} == config.dict(exclude={"status_code"})
    assert {"status_code": 429} == config.model_dump(include={"status_code"})
    written: str = config.model_dump_json()
    assert {"status_code": 429, "retry_after_s": None} == json.loads(written)


def test_json_has_values_where_python_has_members() -> None:
    options = HTTPOptions(location="HeadOnly")

    assert options.model_dump()["location"] is ProxyLocation.HeadOnly
    assert type(options.model_dump(mode="json")["location"]) is str
    nested = MADE[0].dict()["policy"]
    assert "shop:decide" == nested["policy_function"]


def test_a_copy_differs_in_what_is_updated_and_is_checked() -> None:
    config = AutoscalingConfig(min_replicas=1, max_replicas=4)

    assert AutoscalingConfig(min_replicas=2, max_replicas=4) == config.copy(
        update={"min_replicas": 2}
    )
    assert 1 == config.min_replicas
    with pytest.raises(OptionError, match="min_replicas=-1 is not allowed"):
        config.model_copy(update={"min_replicas": -1})
    with pytest.raises(TypeError, match="least_replicas"):
        config.model_copy(update={"least_replicas": 1})


@pytest.mark.parametrize(
    ("given", "text"),
    [({"max_replicas": 0}, "max_replicas=0"), ({"most": 1}, "no option 'most'"), (3, "=3 is not")],
)
def test_what_cannot_be_read_is_a_value_error_as_of_pydantic(given: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AutoscalingConfig.parse_obj(given)


def test_no_configuration_is_a_model_of_pydantic_nor_pretends_to_be_one() -> None:
    assert not any(isinstance(each, BaseModel) for each in MADE)


@pytest.mark.parametrize("mode", list(DeploymentMode))
def test_the_older_names_of_places_are_understood(mode: DeploymentMode) -> None:
    place = HTTPOptions(location=mode).location

    assert place is {"NoServer": ProxyLocation.Disabled}.get(mode.value, place)
    assert "HeadOnly" == DeploymentMode.HeadOnly, "they are texts too"


def test_options_take_what_was_written_down() -> None:
    config = AutoscalingConfig(max_replicas=7)
    options = DeploymentOptions.of({"autoscaling_config": config.dict(), "num_replicas": "auto"})

    assert options.autoscaling_config == config
    assert math.isclose(2.0, config.dict()["target_ongoing_requests"])
