"""How long calls take: learnt of counts, and forgotten where other calls come."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from pyserve.control.autoscaling.signals import Services

_TICK_S = 0.1

# Calls per second, and how long the next of them takes.
Calls = tuple[float, Callable[[random.Random], float]]


def constant(rate: float, service_s: float) -> Calls:
    return rate, lambda _: service_s


class Replicas:
    """Room for any number of calls; counts are told each tick, as replicas do."""

    def __init__(self, seed: int = 1) -> None:
        self.draw = random.Random(seed)
        self.services = Services(0.0)
        self.now = self.due = 0.0
        self.ends: list[float] = []
        self.changes: list[float] = []

    def run(self, seconds: float, calls: Calls) -> None:
        rate, service_s = calls
        for _ in range(round(seconds / _TICK_S)):
            begun, self.now = self.now, self.now + _TICK_S
            busy_s = sum(min(end, self.now) - begun for end in self.ends)
            started = 0
            self.due = max(self.due, begun)
            while rate and self.due < self.now:
                takes_s = service_s(self.draw)
                busy_s += min(takes_s, self.now - self.due)
                heapq.heappush(self.ends, self.due + takes_s)
                self.due += self.draw.expovariate(rate)
                started += 1
            finished = 0
            while self.ends and self.ends[0] <= self.now:
                heapq.heappop(self.ends)
                finished += 1
            self.services.add(busy_s=busy_s, started=started, finished=finished)
            changed = self.services.look(len(self.ends), self.now)
            if changed is not None:
                self.changes.append(changed)

    @property
    def mean_s(self) -> float:
        assert self.services.mean_s is not None
        return self.services.mean_s


def test_a_mean_is_learnt_and_kept_while_nothing_runs():
    replicas = Replicas()
    assert replicas.services.mean_s is None

    replicas.run(60, constant(20.0, 0.3))
    replicas.run(600, constant(0.0, 1.0))

    assert 0.3 == pytest.approx(replicas.mean_s, rel=0.05)


@pytest.mark.parametrize("taught_s", [60, 600])
def test_longer_calls_are_believed_in_seconds_however_much_was_learnt_of_short_ones(
    taught_s: float,
):
    replicas = Replicas()
    replicas.run(taught_s, constant(200.0, 0.005))

    replicas.run(3, constant(5.0, 10.0))
    assert replicas.mean_s > 0.5, "a hundred times what was learnt: as long as they have run"
    replicas.run(20, constant(5.0, 10.0))

    assert 10.0 == pytest.approx(replicas.mean_s, rel=0.4)


@pytest.mark.parametrize("taught_s", [60, 600])
def test_shorter_calls_are_believed_as_soon_as_the_long_ones_are_over(taught_s: float):
    replicas = Replicas()
    replicas.run(taught_s, constant(5.0, 10.0))

    replicas.run(11, constant(200.0, 0.005))

    assert replicas.mean_s < 0.1


def test_a_change_says_since_when_other_calls_come():
    replicas = Replicas()
    replicas.run(60, constant(200.0, 0.005))

    replicas.run(10, constant(5.0, 10.0))

    assert 60.0 == pytest.approx(replicas.changes[0], abs=1.0)


def test_the_long_calls_that_a_burst_leaves_over_are_no_longer_calls():
    """They were there before: of all that came, as many are long as ever."""
    replicas = Replicas()

    def one_in_ten(draw: random.Random) -> float:
        return 3.0 if draw.random() < 0.1 else 0.1

    for _ in range(8):
        replicas.run(4, (100.0, one_in_ten))
        replicas.run(20, constant(0.0, 1.0))
        assert 0.39 == pytest.approx(replicas.mean_s, rel=0.4)


def test_one_call_that_does_not_end_is_one_call():
    """It runs alone for longer than the window is, and is still one of hundreds."""
    replicas = Replicas()
    replicas.run(60, constant(20.0, 0.3))
    heapq.heappush(replicas.ends, replicas.now + 1000.0)

    replicas.run(200, constant(0.0, 1.0))

    assert replicas.mean_s < 1.0


def test_more_calls_of_the_same_kind_are_no_others():
    replicas = Replicas()
    replicas.run(60, constant(5.0, 4.0))

    replicas.run(60, constant(80.0, 4.0))

    assert [] == [at for at in replicas.changes if at > 20], "when the first ones have ended"


def test_chance_is_hardly_ever_a_change():
    replicas = Replicas()

    replicas.run(1200, (30.0, lambda draw: draw.expovariate(2.0)))

    assert len(replicas.changes) <= 1
    assert 0.5 == pytest.approx(replicas.mean_s, rel=0.2)


def test_calls_that_looks_hardly_ever_meet_are_still_of_one_kind():
    """Of 50 calls of 1 ms in a second, ten looks of a replica meet one in two seconds."""
    draw, services = random.Random(1), Services(0.0)
    changes = 0
    for tick in range(1, 6000):
        met = draw.random() < 0.05
        services.add(busy_s=0.1 * met, started=5, finished=5)
        changes += services.look(0, tick * _TICK_S) is not None

    assert changes <= 2
    assert services.mean_s == pytest.approx(0.001, rel=0.5)
