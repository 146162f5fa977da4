"""A share of what a file asks for: how it rounds, where it moves, and what becomes of bounds."""

import math
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.state.applications import ApplicationInfo, Capacity, Direction
from pyserve.control.store.records import ApplicationRecord, Table, decode, encode
from pyserve.errors import UsageError
from pyserve.types import ApplicationName
from pyserve.wire.v1 import mesh_pb2

pytestmark = pytest.mark.parity("G-31")
SCALED = {"min_replicas": 2, "initial_replicas": 5, "max_replicas": 21}


def scaled(percent: float | None, direction: Direction | None, **options: Any) -> DeploymentOptions:
    """Return what is left of the options of a deployment."""
    before = DeploymentOptions.of(options)
    spec = mesh_pb2.DeploymentSpec(name="Main", options_json=before.to_json())
    (after,) = Capacity(percent, direction).applied([spec])
    assert before.to_json() == spec.options_json, "what the driver sent is its own"
    assert "Main" == after.name
    return DeploymentOptions.from_json(after.options_json)


@pytest.mark.parametrize(
    ("number", "percent", "left"),
    [
        (10, None, 10),
        (10, 100.0, 10),
        (10, 25.0, 3),  # 2.5: halves round up
        (10, 24.9, 2),
        (10, 35.0, 4),
        (3, 50.0, 2),
        (1000, 0.01, 1),  # never none, where some were asked for
        (1, 1.0, 1),
        (0, 50.0, 0),
        (10, 0.0, 0),
        # 0.57 × 100 is a little less than 57 as a float, and so is 50 × 1.1 more than 55.
        (100, 57.0, 57),
        (1, 49.999, 1),
    ],
)
def test_a_share_of_replicas_is_rounded_and_at_least_one(
    number: int, percent: float | None, left: int
) -> None:
    assert left == Capacity(percent).of(number)
    if percent is not None:
        assert left == scaled(percent, None, num_replicas=number).initial_num_replicas


@pytest.mark.parametrize(
    ("before", "percent", "is_same", "after"),
    [
        (None, None, True, None),
        (None, 50.0, False, Direction.UP),
        (None, 50.0, True, Direction.DOWN),
        (None, 100.0, True, Direction.DOWN),
        (50.0, 20.0, True, Direction.DOWN),
        (50.0, 70.0, True, Direction.UP),
        (50.0, 20.0, False, Direction.UP),
        (50.0, None, True, None),
        (50.0, 50.0, True, Direction.DOWN),
    ],
)
def test_a_share_moves_up_or_down(
    before: float | None, percent: float | None, is_same: bool, after: Direction | None
) -> None:
    former = Capacity(before, None if before is None else Direction.DOWN)

    assert Capacity(percent, after) == former.moved_to(percent, is_same=is_same)


@pytest.mark.parametrize("percent", [-1.0, 100.5, math.nan, math.inf])
def test_what_is_no_share_is_refused(percent: float) -> None:
    with pytest.raises(UsageError, match=r"target_capacity=.* is not allowed; from 0 to 100"):
        Capacity().moved_to(percent, is_same=True)


def test_bounds_of_autoscaling_shrink_with_it() -> None:
    left = scaled(50, Direction.DOWN, autoscaling_config=SCALED).scaling

    assert left is not None
    assert (1, 3, 11) == (left.min_replicas, left.initial_replicas, left.max_replicas)


def test_initial_replicas_are_the_least_while_a_share_grows() -> None:
    left = scaled(50, Direction.UP, autoscaling_config=SCALED).scaling
    whole = scaled(100, Direction.UP, autoscaling_config=SCALED).scaling

    assert left is not None
    assert whole is not None
    assert (3, 11) == (left.min_replicas, left.max_replicas)
    assert (2, 21) == (whole.min_replicas, whole.max_replicas), "nothing is limited any more"


def test_auto_shrinks_as_its_bounds_do() -> None:
    left = scaled(30, Direction.UP, num_replicas="auto")

    assert left.scaling is not None
    assert ("auto", 1, 30) == (
        left.num_replicas,
        left.scaling.min_replicas,
        left.scaling.max_replicas,
    )


def test_a_deployment_that_may_have_none_keeps_that() -> None:
    left = scaled(50, Direction.UP, autoscaling_config={"min_replicas": 0, "max_replicas": 4})

    assert left.scaling is not None
    assert (0, 2) == (left.scaling.min_replicas, left.scaling.max_replicas)


@pytest.mark.parametrize(
    "options", [{"num_replicas": 3}, {"num_replicas": "auto"}, {"autoscaling_config": SCALED}]
)
def test_of_nothing_nothing_is_left_that_could_grow(options: dict[str, Any]) -> None:
    left = scaled(0, Direction.DOWN, **options)

    assert (0, None, True) == (left.initial_num_replicas, left.scaling, left.is_scaled_to_zero)


@pytest.mark.parametrize(
    "capacity", [Capacity(), Capacity(12.5, Direction.UP), Capacity(0.0, Direction.DOWN)]
)
def test_a_new_controller_knows_the_share(capacity: Capacity) -> None:
    info = ApplicationInfo("/", "Main", capacity=capacity)
    record = ApplicationRecord(name=ApplicationName("shop"), position=0, info=info)

    assert record == decode(Table.APPLICATIONS, encode(record))
