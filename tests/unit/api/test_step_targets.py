"""Targets of autoscaling that only a continuously batched class can have."""

from __future__ import annotations

from typing import Any

import pytest

import pyserve
from pyserve.api.graph import pack
from pyserve.errors import OptionError
from pyserve.types import ApplicationName

TARGETS = [
    {"target_ongoing_cost": 100},
    {"target_time_to_first_value_s": 0.5},
    {"target_time_per_value_s": 0.05},
]


class Plain:
    def __call__(self) -> int:
        return 1


@pyserve.continuous
class Stepped:
    def admit(self, request: int) -> int:
        return request

    def step(self, states: list[int]) -> list[pyserve.Done]:
        return [pyserve.Done(each) for each in states]


def function() -> int:
    return 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("code", [Plain, function])
def test_they_are_refused_where_the_deployment_is_declared(target: dict[str, Any], code: Any):
    said = f"deployment '{code.__name__}' has autoscaling_config.{next(iter(target))}"
    with pytest.raises(OptionError, match=said):
        pyserve.deployment(autoscaling_config=target)(code)
    with pytest.raises(OptionError, match=r"@pyserve.continuous, and .* has none"):
        pyserve.deployment(code).options(autoscaling_config=target)


@pytest.mark.parametrize("target", TARGETS)
def test_they_are_refused_where_others_replace_the_options(target: dict[str, Any]):
    app = pyserve.deployment(Plain).bind()
    with pytest.raises(OptionError, match=f"'Plain' has autoscaling_config.{next(iter(target))}"):
        pack(
            app,
            ApplicationName("default"),
            adjust=lambda _, options: options.updated({"autoscaling_config": target}),
        )


@pytest.mark.parametrize("target", TARGETS)
def test_a_continuously_batched_class_can_have_them(target: dict[str, Any]):
    found = pyserve.deployment(autoscaling_config={"max_replicas": 2, **target})(Stepped)
    assert "Stepped" == found.options(autoscaling_config=target).bind().name
