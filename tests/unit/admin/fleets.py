"""Replicas of a deployment, drawn at random: what each did, and which are truly at fault.

Times are drawn as a service's own, then counted by the buckets that routers have. A fleet is sound
or has replicas that are slow or fail; what makes sound ones look alike or not is drawn too: how
many calls each gets, which calls, cold first ones, and a small difference between machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyserve.admin.api.outliers import CALLS_MIN, Served
from pyserve.admin.histograms import Histogram
from pyserve.observe.metrics.families import TIME_BOUNDS_S

FACTOR_MIN, FACTOR_MAX = 1.5, 20.0
LONG = 300.0
Floats = NDArray[np.float64]
Seen = dict[str, Served]


@dataclass(frozen=True)
class Kind:
    """How long a call takes: a distribution whose typical time is about 1.

    Attributes:
        name: ``constant``, ``exponential``, ``lognormal`` or ``bimodal``.
        sigma: Of a lognormal's logarithm.
        long_share: Of a bimodal's calls; they take 300 times as long as the others.
    """

    name: str
    sigma: float = 0.0
    long_share: float = 0.0

    def draw(self, chance: np.random.Generator, count: int, long_share: float) -> Floats:
        match self.name:
            case "constant":
                return np.ones(count)
            case "exponential":
                return chance.exponential(size=count)
            case "lognormal":
                return chance.lognormal(0.0, self.sigma, count)
            case _:
                return np.where(chance.random(count) < long_share, LONG, 1.0)


@dataclass(frozen=True)
class Replica:
    """The truth about a replica.

    Attributes:
        calls: How many it gets, at least 1.
        factor: How many times as long as a sound one it takes; 1: it is sound.
        machine: The same of its machine, which is no fault.
        long_share: Its share of long calls, if there are such.
        cold: How many of its calls are first ones of a new process.
        failing_share: Its share of calls that fail.
    """

    calls: int
    factor: float
    machine: float
    long_share: float
    cold: int
    failing_share: float


@dataclass(frozen=True)
class Fleet:
    """The replicas of one deployment.

    Attributes:
        kind: How long their calls take.
        base_s: The typical time.
        mixed: Which replicas get another share of long calls than the rest.
        failing_share: The share of a sound one's calls that fail.
        replicas: By name.
        is_by_method: Whether long calls are of a method of their own, as replicas tell.
    """

    kind: Kind
    base_s: float
    mixed: frozenset[int]
    failing_share: float
    replicas: dict[str, Replica]
    is_by_method: bool = False

    @property
    def slow(self) -> set[str]:
        return {name for name, each in self.replicas.items() if each.factor > 1}

    @property
    def failing(self) -> set[str]:
        return {
            name for name, each in self.replicas.items() if each.failing_share > self.failing_share
        }

    def served(self, chance: np.random.Generator) -> dict[str, Served]:
        """Draw what each replica did in one window."""
        return {name: self._served(chance, each) for name, each in self.replicas.items()}

    def _served(self, chance: np.random.Generator, replica: Replica) -> Served:
        times, is_long = self.times(chance, replica, replica.calls)
        failed = int(chance.binomial(replica.calls, replica.failing_share))
        methods = {"long": times[is_long], "short": times[~is_long]}
        return Served(
            replica.calls,
            failed,
            histogram(times),
            {name: histogram(each) for name, each in methods.items() if self.is_by_method},
        )

    def times(
        self, chance: np.random.Generator, replica: Replica, calls: int
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Draw how long the first calls of a replica take, and which of them are long ones."""
        drawn = self.kind.draw(chance, calls, replica.long_share)
        is_long = drawn == LONG
        drawn[: replica.cold] *= chance.uniform(10, 100)
        return drawn * self.base_s * replica.factor * replica.machine, is_long


def histogram(times_s: Floats) -> Histogram:
    """Count times by the buckets of routers."""
    places = np.searchsorted(TIME_BOUNDS_S, times_s)
    counts = np.bincount(places, minlength=len(TIME_BOUNDS_S) + 1)
    return Histogram.of(TIME_BOUNDS_S, [int(each) for each in counts], float(times_s.sum()))


def kinds(chance: np.random.Generator) -> Kind:
    """Draw a kind of calls."""
    name = str(chance.choice(["constant", "exponential", "lognormal", "bimodal"]))
    return Kind(name, float(chance.uniform(0.5, 2.0)), float(chance.uniform(0.02, 0.5)))


def fleets(chance: np.random.Generator, count: int) -> Iterator[Fleet]:
    """Draw fleets."""
    for _ in range(count):
        yield fleet(chance)


def fleet(chance: np.random.Generator) -> Fleet:
    """Draw one fleet."""
    kind = kinds(chance)
    size = int(_log_uniform(chance, 2, 64.99))
    slow, failing = _faulty(chance, size), _faulty(chance, size)
    mixed = _mixed(chance, size)
    failing_share = float(chance.choice([0.0, 0.001, 0.01, 0.05]))
    replicas = {}
    factors = {number: _log_uniform(chance, FACTOR_MIN, FACTOR_MAX) for number in slow}
    calls = _calls(chance, size, factors)
    cold = int(chance.integers(1, 4)) if chance.random() < 0.2 else 0
    all_are_cold = chance.random() < 0.5
    for number in range(size):
        replicas[f"r{number}"] = Replica(
            calls=calls[number],
            factor=factors.get(number, 1.0),
            machine=float(chance.lognormal(0.0, 0.05)),
            long_share=float(chance.random()) if number in mixed else kind.long_share,
            cold=min(cold, calls[number]) if all_are_cold or number == 0 else 0,
            failing_share=max(failing_share, _log_uniform(chance, 0.02, 1.0))
            if number in failing
            else failing_share,
        )
    return Fleet(kind, _log_uniform(chance, 0.0005, 0.5), mixed, failing_share, replicas)


def _faulty(chance: np.random.Generator, size: int) -> set[int]:
    """Draw which are faulty: none, one, or several that are fewer than the others."""
    most = (size - 1) // 2
    count = int(chance.choice([0, 1, max(1, int(chance.integers(0, most + 1)))], p=[0.5, 0.3, 0.2]))
    return {int(each) for each in chance.choice(size, count, replace=False)}


def _mixed(chance: np.random.Generator, size: int) -> frozenset[int]:
    """Draw which get other calls: none, one, or all, as where sessions or models have their own."""
    if chance.random() < 0.8:
        return frozenset()
    return frozenset([int(chance.integers(size))] if chance.random() < 0.5 else range(size))


def _calls(chance: np.random.Generator, size: int, factors: dict[int, float]) -> list[int]:
    """Draw how many calls each gets: equal numbers, unequal ones, or fewer where it is slow."""
    typical = _log_uniform(chance, 5, 5000)
    spread, avoids = chance.choice([0.0, 0.3, 1.0]), chance.random() < 0.5
    return [
        int(
            np.clip(
                typical * chance.lognormal(0, spread) / (factors.get(number, 1) if avoids else 1),
                1,
                5000,
            )
        )
        for number in range(size)
    ]


def _log_uniform(chance: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(chance.uniform(np.log(low), np.log(high))))


def hour(chance: np.random.Generator, fleet: Fleet, seen_s: float, kept_s: float) -> Iterator[Seen]:
    """Yield what each look of an hour shows, of a minute or of all before where that has few calls.

    Args:
        chance: What calls are drawn from; each replica has its own rate, about that of ``calls`` in
            a minute.
        fleet: The replicas.
        seen_s: From one look to the next.
        kept_s: From one look that later ones are compared with to the next.
    """
    looks = int(3600 / seen_s)
    counted = {
        name: _counted(chance, fleet, each, looks, each.calls * seen_s / 60)
        for name, each in fleet.replicas.items()
    }
    for now in range(1, looks + 1):
        then = max(0, int(np.ceil((now * seen_s - 60) / kept_s)) * int(kept_s / seen_s))
        yield {
            name: _seen(
                upto[now] - upto[then if upto[now, -2] - upto[then, -2] >= CALLS_MIN else 0]
            )
            for name, upto in counted.items()
        }


def _counted(
    chance: np.random.Generator, fleet: Fleet, replica: Replica, looks: int, calls: float
) -> Floats:
    """Return counts by bucket, their sum, and the sum of times, up to each look."""
    each = chance.poisson(calls, looks)
    times, _ = fleet.times(chance, replica, int(each.sum()))
    steps = np.zeros((looks + 1, len(TIME_BOUNDS_S) + 3))
    at = np.repeat(np.arange(1, looks + 1), each)
    np.add.at(steps, (at, np.searchsorted(TIME_BOUNDS_S, times)), 1)
    steps[1:, -2] = each
    steps[:, -1] = np.bincount(at, weights=times, minlength=looks + 1)
    return np.cumsum(steps, axis=0)


def _seen(counted: Floats) -> Served:
    calls = int(counted[-2])
    counts = [int(each) for each in counted[:-2]]
    return Served(calls, 0, Histogram.of(TIME_BOUNDS_S, counts, float(counted[-1])))
