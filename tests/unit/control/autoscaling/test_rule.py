"""Ray Serve's rule on virtual time: what grows, what shrinks, and when."""

from typing import Any

import pytest

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.latency import Fleet
from pyserve.control.autoscaling.rule import Delays
from pyserve.control.autoscaling.scaler import Scaler
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId

KEY = DeploymentKey(ApplicationName("shop"), DeploymentName("Model"))


class Played:
    """A deployment whose replicas start and end at once."""

    def __init__(self, *, target: int = 1, **options: Any) -> None:
        self.config = AutoscalingConfig.of("autoscaling_config", {"max_replicas": 10, **options})
        self.scaler = Scaler(KEY, self.config, target, 0.0)
        self.target = target
        self.now = 0.0
        self.calls = 0

    def run(self, seconds: float, *, ongoing: int = 0, parked: int = 0) -> list[tuple[float, int]]:
        """Let a load last; return when the number changed, and to what."""
        changes = []
        for _ in range(round(seconds / 0.1)):
            self.now = round(self.now + 0.1, 6)
            ids = [ReplicaId(f"r{index}") for index in range(self.target)]
            signals = self.scaler.signals
            signals.keep_replicas(ids, self.now)
            for index, each in enumerate(ids):
                share = ongoing // len(ids) + (index < ongoing % len(ids))
                signals.on_replica(each, ongoing=share, calls=0, busy_s=0.0, now=self.now)
            signals.on_router("ingress", parked=parked, offered=self.calls, now=self.now)
            outcome = self.scaler.decide(Fleet(ids, self.target), self.now)
            if outcome.target != self.target and not self.config.advisory:
                self.target = outcome.target
                changes.append((self.now, self.target))
        return changes


@pytest.mark.parity("G-24")
def test_a_load_becomes_as_many_replicas_as_it_takes_within_a_second():
    played = Played()

    changes = played.run(1.0, ongoing=2, parked=14)

    assert 8 == played.target
    assert 1.0 >= changes[-1][0]


@pytest.mark.parity("G-24")
def test_delays_that_are_set_are_waited_for():
    played = Played(upscale_delay_s=3.0, downscale_delay_s=5.0, look_back_period_s=1.0)
    played.run(2.0, ongoing=1)

    up = played.run(6.0, ongoing=8)
    down = played.run(20.0, ongoing=2)

    assert [4] == [number for _, number in up]
    assert 3.0 == pytest.approx(up[0][0] - 2.0, abs=0.6)
    assert [1] == [number for _, number in down][-1:]
    assert 5.0 <= down[0][0] - 8.0


@pytest.mark.parity("G-24")
def test_a_load_that_goes_before_the_delay_has_passed_changes_nothing():
    played = Played(upscale_delay_s=3.0, look_back_period_s=1.0)

    changes = [change for _ in range(5) for change in (*played.run(2, ongoing=9), *played.run(3))]

    assert [] == changes


@pytest.mark.parity("G-23")
@pytest.mark.parametrize(("options", "most"), [({}, 10), ({"max_replicas": 3}, 3)])
def test_bounds_hold_whatever_comes(options: dict[str, Any], most: int):
    played = Played(**options, min_replicas=1, downscale_delay_s=1.0, look_back_period_s=1.0)

    played.run(2.0, ongoing=500)
    highest = played.target
    played.run(60.0)

    assert (most, 1) == (highest, played.target)


@pytest.mark.parity("G-25")
def test_from_zero_the_first_call_starts_one_at_once_whatever_the_delay():
    played = Played(target=0, min_replicas=0, upscale_delay_s=30.0)
    played.run(5.0)

    changes = played.run(0.1, parked=1)

    assert [(5.1, 1)] == changes


@pytest.mark.parity("G-25")
def test_the_last_replica_goes_after_its_own_delay():
    played = Played(
        target=4,
        min_replicas=0,
        downscale_delay_s=2.0,
        downscale_to_zero_delay_s=10.0,
        look_back_period_s=1.0,
    )
    played.run(1.0, ongoing=8)

    changes = played.run(30.0)

    assert [1, 0] == [number for _, number in changes]
    assert 10.0 <= changes[1][0] - changes[0][0]


@pytest.mark.parity("G-24")
@pytest.mark.parametrize(("function", "expected"), [("mean", 2), ("max", 4), ("min", 1)])
def test_what_the_period_saw_is_folded_as_the_option_says(function: str, expected: int):
    played = Played(
        target=6,
        aggregation_function=function,
        look_back_period_s=10.0,
        upscale_delay_s=10.0,
        downscale_delay_s=0.5,
    )
    signals = played.scaler.signals
    for at, parked in ((0.0, 2), (5.0, 8), (6.0, 2)):
        signals.on_router("ingress", parked=parked, offered=0, now=at)
    fleet = Fleet([ReplicaId("r")] * 6, 6)

    played.scaler.decide(fleet, 10.0)

    assert expected == played.scaler.decide(fleet, 10.5).target


@pytest.mark.parity("G-24")
@pytest.mark.parametrize(
    ("options", "number", "expected"),
    [
        ({"upscaling_factor": 0.5}, 8.0, 6),
        ({"upscaling_factor": 2.0}, 6.0, 8),
        ({"downscaling_factor": 0.5}, 2.0, 3),
        ({"downscaling_factor": 0.1}, 3.0, 3),  # a small one does not stop it for good
        ({}, 4.0000000001, 4),
    ],
)
def test_factors_make_up_for_a_part_of_the_difference(
    options: dict[str, Any], number: float, expected: int
):
    delays = Delays(AutoscalingConfig(max_replicas=10, downscale_delay_s=0.0, **options))

    settled = delays.settle(number, running=4, target=4, now=1.0)

    assert expected == settled.number


def test_nothing_shrinks_while_the_first_replicas_start():
    scaler = Scaler(KEY, AutoscalingConfig(max_replicas=5, downscale_delay_s=0.0), 3, 0.0)

    assert 3 == scaler.decide(Fleet([], 3), 100.0).target


def test_an_advice_stands_and_says_why_while_nothing_follows_it():
    played = Played(advisory=True)
    played.run(5.0, ongoing=7)

    outcome = played.scaler.outcome

    assert (1, 4) == (played.target, outcome.target)
    assert "2 for each replica" in outcome.reason
    assert 1.0 > outcome.since
    played.run(1.0, ongoing=1)
    assert 1 == played.scaler.outcome.target


def test_a_router_that_goes_takes_its_calls_with_it():
    played = Played()
    played.run(0.1, parked=30)

    played.scaler.signals.drop_router("ingress", played.now)

    assert 0 == played.scaler.signals.total
