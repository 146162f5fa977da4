"""The number of replicas follows the times of values, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.control.autoscaling.value_times import StepReport, replicas_for_time
from pyserve.errors import OptionError
from pyserve.types import ReplicaId
from tests.unit.control.autoscaling.stepped import KEY, Stepped

ONE, TWO = ReplicaId("r1"), ReplicaId("r2")
FIRST: dict[str, Any] = {"target_time_to_first_value_s": 0.3}
EACH: dict[str, Any] = {"target_time_per_value_s": 0.055}
# One replica does fourteen requests a second.
SHAPE: dict[str, Any] = {"places": 8, "steps": 10}


def scaler_of(target: int = 1, **options: Any) -> Scaler:
    defaults = {"max_replicas": 8, "downscale_delay_s": 5.0, "look_back_period_s": 10.0}
    config = AutoscalingConfig.of("autoscaling_config", {**defaults, **options})
    return Scaler(KEY, config, target, 0.0)


def tell(scaler: Scaler, now: float, *, ongoing: int = 4, cost: float = 0.0, **report: Any) -> None:
    scaler.signals.on_replica(
        ONE, ongoing=ongoing, calls=0, busy_s=0.0, now=now, cost=cost, steps=StepReport(**report)
    )


# Under a load.


@pytest.mark.parametrize("options", [FIRST, EACH])
def test_a_load_brings_replicas_until_the_target_is_met_and_then_none(options: Any) -> None:
    played = Stepped(downscale_delay_s=5.0, **options, **SHAPE)

    played.run(60.0, 30.0)
    grown, changes = played.number, len(played.changes)
    played.run(40.0, 30.0)

    assert 3 <= grown <= 6
    assert changes == len(played.changes)
    values = played.scaler.signals.values
    assert 0.3 > (values.first_value_s(played.now, recently=False) or 0.0)


@pytest.mark.parametrize("options", [FIRST, EACH, {**FIRST, **EACH}])
def test_what_a_jump_has_brought_leaves_and_the_rest_stays(options: Any) -> None:
    played = Stepped(replicas=12, downscale_delay_s=5.0, **options, **SHAPE)

    played.run(60.0, 30.0)
    fewer, changes = played.number, len(played.changes)
    played.run(40.0, 30.0)

    assert 3 <= fewer <= 6
    assert changes == len(played.changes)


@pytest.mark.parametrize("options", [FIRST, EACH])
def test_without_calls_the_fewest_replicas_stay(options: Any) -> None:
    played = Stepped(replicas=3, min_replicas=0, downscale_delay_s=5.0, **options, **SHAPE)

    played.run(10.0, 20.0)

    assert 0 == played.run(60.0, 0.0)
    assert 1 <= played.run(30.0, 2.0)


@pytest.mark.parametrize("options", [FIRST, EACH])
def test_a_higher_load_never_has_fewer_replicas(options: Any) -> None:
    found = [
        Stepped(downscale_delay_s=5.0, **options, **SHAPE).run(60.0, rate)
        for rate in (2.0, 12.0, 40.0)
    ]

    assert sorted(found) == found
    assert found[0] < found[-1]


def test_where_steps_take_in_proportion_to_their_states_it_comes_to_rest_too() -> None:
    played = Stepped(base_s=0.0, each_s=0.005, downscale_delay_s=5.0, **FIRST, places=64)

    played.run(60.0, 35.0)
    changes = len(played.changes)
    played.run(40.0, 35.0)

    # Two do 40 requests a second.
    assert 2 <= played.number <= 3
    assert changes == len(played.changes)


# The number for a time.

_SHARE = st.floats(0.0, 3.0)


@given(
    running=st.integers(1, 50),
    times=st.tuples(_SHARE, _SHARE),
    shares=st.tuples(_SHARE, _SHARE),
    calls=st.tuples(st.integers(1, 500), st.integers(1, 500)),
)
def test_more_of_anything_never_wants_fewer(
    running: int,
    times: tuple[float, float],
    shares: tuple[float, float],
    calls: tuple[int, int],
) -> None:
    def number(pick: Any) -> float:
        return replicas_for_time(
            pick(times), 1.0, running=running, fullness=pick(shares) * running, calls=pick(calls)
        )

    assert number(min) <= number(max) + 1e-9
    assert 1 <= number(min) <= max(calls)


def test_it_doubles_at_most_and_never_beyond_the_calls() -> None:
    assert 8 == replicas_for_time(60.0, 1.0, running=4, fullness=4.0, calls=100)
    assert 5 == replicas_for_time(60.0, 1.0, running=4, fullness=4.0, calls=5)
    assert 4 == replicas_for_time(60.0, 1.0, running=4, fullness=4.0, calls=9, is_draining=True)


# The reports.


def test_requests_without_a_value_count_before_they_have_one() -> None:
    scaler = scaler_of(**FIRST)
    tell(scaler, 1.0, unanswered=4)

    assert 1 == scaler.decide(Fleet([ONE], 1), 1.2).target
    outcome = scaler.decide(Fleet([ONE], 1), 1.5)

    assert 2 == outcome.target
    assert "0.5 s to the first value, 0.3 s is the target" == outcome.reason


def test_the_wait_in_routers_is_part_of_the_time_to_the_first_value() -> None:
    scaler = scaler_of(**FIRST)
    signals = scaler.signals
    tell(scaler, 0.0)
    signals.on_router("ingress", parked=4, offered=4, now=0.0)

    # Of two calls a second, four wait: two seconds each.
    for second in range(1, 5):
        count = 2 * second
        report = StepReport(first_values=count, first_value_s=0.1 * count)
        signals.on_replica(ONE, ongoing=4, calls=count, busy_s=0.0, now=float(second), steps=report)

    found = signals.values.first_value_s(4.0, recently=False)
    assert 2.1 == pytest.approx(found, abs=0.3)


def test_calls_that_only_wait_in_routers_want_replicas_too() -> None:
    scaler = scaler_of(**FIRST)
    signals = scaler.signals
    targets = []
    for second in range(1, 9):
        # The one replica is full with two long streams; no other call begins.
        signals.on_router("ingress", parked=4, offered=6, now=float(second))
        report = StepReport(first_values=2, first_value_s=0.1, fullness=1.0)
        signals.on_replica(ONE, ongoing=2, calls=2, busy_s=0.0, now=float(second), steps=report)
        targets.append(scaler.decide(Fleet([ONE], 1), float(second)).target)

    assert 2 == targets[-1], targets


def test_replicas_that_start_stay_while_the_others_are_too_slow() -> None:
    scaler = scaler_of(4, **FIRST, downscale_delay_s=0.0)
    tell(scaler, 1.0, unanswered=4)
    for now in (1.5, 2.0, 3.0):
        assert 4 == scaler.decide(Fleet([ONE], 4), now).target


def test_without_a_report_the_number_stays() -> None:
    scaler = scaler_of(3, **FIRST, **EACH)
    for now in range(30):
        scaler.signals.on_replica(ONE, ongoing=9, calls=9, busy_s=0.0, now=float(now))
        assert 3 == scaler.decide(Fleet([ONE, TWO], 3), float(now)).target


def test_the_largest_wish_counts() -> None:
    scaler = scaler_of(**FIRST, target_ongoing_cost=100)
    tell(scaler, 1.0, first_values=1, cost=450.0)
    assert 5 == scaler.decide(Fleet([ONE], 1), 2.0).target

    scaler = scaler_of(**FIRST, **EACH)
    tell(scaler, 1.0)
    tell(scaler, 2.0, first_values=5, first_value_s=1.0, next_values=5, next_value_s=0.5)
    outcome = scaler.decide(Fleet([ONE], 1), 2.0)
    assert 2 == outcome.target
    assert outcome.reason.startswith("0.1 s from value to value")


def test_from_nothing_the_first_call_wants_a_replica() -> None:
    scaler = scaler_of(0, min_replicas=0, **FIRST)
    scaler.signals.on_router("ingress", parked=1, offered=1, now=1.0)
    assert 1 == scaler.decide(Fleet([], 0), 1.0).target


def test_counts_from_before_the_first_report_are_not_evidence() -> None:
    scaler = scaler_of(**FIRST)
    tell(scaler, 1.0, first_values=10, first_value_s=100.0)
    assert 1 == scaler.decide(Fleet([ONE], 1), 2.0).target


def test_another_configuration_goes_on_with_what_was_told() -> None:
    before, after = scaler_of(**FIRST), scaler_of(**FIRST, max_replicas=9)
    tell(before, 1.0)
    tell(before, 2.0, first_values=3, first_value_s=3.0)

    after.signals.take_over(before.signals, 2.5)

    assert 2 == after.decide(Fleet([ONE], 1), 3.0).target


def test_a_replica_that_leaves_takes_what_it_holds_along() -> None:
    scaler = scaler_of(**FIRST)
    tell(scaler, 1.0, unanswered=4, fullness=2.0)
    assert 2.0 == pytest.approx(scaler.signals.values.fullness(2.0))

    scaler.signals.keep_replicas([], 2.0)

    assert scaler.signals.values.first_value_s(9.0, recently=True) is None
    assert not scaler.signals.values.is_told


# Options.


@pytest.mark.parametrize("name", ["target_time_to_first_value_s", "target_time_per_value_s"])
@pytest.mark.parametrize(
    "options", [{"target_wait_s": 1.0}, {"policy": {"policy_function": "a:b"}}, {"itself": 0}]
)
def test_a_target_is_above_nothing_and_beside_no_other_policy(
    name: str, options: dict[str, Any]
) -> None:
    options = {name: options["itself"]} if "itself" in options else {name: 1.0, **options}
    with pytest.raises(OptionError, match=name):
        AutoscalingConfig.of("autoscaling_config", options)
