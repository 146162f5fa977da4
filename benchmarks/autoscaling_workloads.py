"""Workloads of a seed: which calls come when, and what the replicas are like.

Each is a row of phases. From one phase to the next everything may change: how long calls take
(1 ms to 30 s), how these times are spread, how many calls come, and from whom: from independent
callers (an open loop), or from clients that wait for their answers (a closed one).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from pyserve.control.autoscaling.latency import servers_for

# Each simulated call costs processor time, so a phase has at most about so many.
CALLS_MAX = 4000
# Of the places that all replicas together may have, so that the target can be kept at all.
_USED_MAX = 0.6
_SHARE_BEYOND = 0.01
# Of the calls of two kinds, so many are the long ones, and so many times as long.
_LONG_SHARE, _LONG_TIMES = 0.1, 30.0
# Lognormal, of the mean 1: the squared coefficient of variation is 3.2.
_TAIL_SIGMA = 1.2

SHAPES = ("steady", "steady", "drift", "alternate", "burst", "idle", "held")
SPREADS = ("constant", "exponential", "heavy", "two kinds")


@dataclass(frozen=True)
class Mix:
    """Which calls come.

    Attributes:
        spread: One of ``SPREADS``.
        service_s: How long one takes, in the mean.
        rate: Calls per second, of an open loop.
        clients: Of a closed loop; 0: it is an open one.
        think_s: How long a client waits after an answer, in the mean.
    """

    spread: str
    service_s: float
    rate: float
    clients: int = 0
    think_s: float = 0.0

    @property
    def load(self) -> float:
        """Calls at once where none waits."""
        if self.clients:
            return self.clients * self.service_s / (self.service_s + self.think_s)
        return self.rate * self.service_s

    def draw(self, chance: random.Random) -> float:
        """Return how long a call takes."""
        if self.spread == "constant":
            return self.service_s
        if self.spread == "exponential":
            return chance.expovariate(1 / self.service_s)
        if self.spread == "heavy":
            return self.service_s * chance.lognormvariate(-(_TAIL_SIGMA**2) / 2, _TAIL_SIGMA)
        short_s = self.service_s / (1 - _LONG_SHARE + _LONG_SHARE * _LONG_TIMES)
        return short_s * (_LONG_TIMES if chance.random() < _LONG_SHARE else 1.0)


@dataclass(frozen=True)
class Phase:
    """A time of one kind of load.

    Attributes:
        shape: One of ``SHAPES``: what becomes of the mix. It stays; it comes from the one before
            (drift); it takes turns with another (alternate); it stops and comes ten times as dense
            (burst); nothing comes (idle); half of the calls wait in the router, whether or not
            there is room (held).
        settle_s: From its beginning until the number of replicas has to fit.
        seconds: How long it lasts.
        mix: Which calls come.
        other: The one that it drifts from, or takes turns with.
        every_s: How long a turn or the time between two bursts takes.
        held_s: How long held calls are held.
    """

    shape: str
    settle_s: float
    seconds: float
    mix: Mix
    other: Mix
    every_s: float
    held_s: float


@dataclass(frozen=True)
class Workload:
    """Everything that a seed decides."""

    seed: int
    start_s: float
    places: int
    each: int
    replicas_min: int
    replicas_max: int
    target_s: float
    lagging: bool
    phases: tuple[Phase, ...]

    def __str__(self) -> str:
        """Every number of it, a phase a line."""
        head = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in self.__dataclass_fields__
            if name != "phases"
        )
        return "\n  ".join([head, *map(str, self.phases)])

    def hold_s(self) -> float:
        """Return how long the policy keeps what it has wanted."""
        return max(10.0, self.start_s)

    def needed(self, mix: Mix, load: float | None = None) -> int:
        """Return the fewest replicas that keep the target, as the policy's formula has it."""
        load = mix.load if load is None else load
        if load <= 0:
            return max(self.replicas_min, 0)
        servers = servers_for(
            load,
            max(self.target_s / mix.service_s, 0.1),
            variability=1.0,
            share=_SHARE_BEYOND,
            servers_max=self.replicas_max * self.each,
        )
        found = math.ceil(servers / self.each)
        return min(max(found, self.replicas_min, 1), self.replicas_max)


def workload(seed: int, phases: int = 4) -> Workload:
    """Return the workload of a seed."""
    chance = random.Random(seed)
    places = round(_between(chance, 1, 100))
    replicas_max = round(_between(chance, 2, 50))
    made = Workload(
        seed=seed,
        start_s=round(_between(chance, 1, 60), 1),
        places=places,
        each=max(places // chance.choice((1, 1, 1, 2)), 1),
        replicas_min=chance.choice((0, 1, 1, min(2, replicas_max))),
        replicas_max=replicas_max,
        target_s=round(_between(chance, 0.05, 5), 2),
        lagging=chance.random() < 0.5,
        phases=(),
    )
    found: list[Phase] = []
    before = Mix("constant", 0.1, 0.0)
    for number in range(phases):
        # The last one is idle, so that each workload shows a way down.
        shape = "idle" if number == phases - 1 else chance.choice(SHAPES)
        found.append(_phase(chance, made, shape, before))
        before = found[-1].mix
    return Workload(**{**made.__dict__, "phases": tuple(found)})


def settle_s(made: Workload, *services: float) -> float:
    """Return after how long the number of replicas has to fit.

    To see the change: the means of the policy are of ten seconds, and the calls of before have to
    end (few take three times the mean). Then to grow: a start, and what has piled up is worked off
    in 1.4 times that; or to shrink: the hold.
    """
    seen_s = 10.0 + 3 * max(services)
    return seen_s + made.start_s + max(1.4 * made.start_s, made.hold_s())


def _phase(chance: random.Random, made: Workload, shape: str, before: Mix) -> Phase:
    spread, service_s = chance.choice(SPREADS), _between(chance, 0.001, 30)
    other_s = _between(chance, 0.001, 30)
    slowest_s = max(service_s, before.service_s, other_s if shape == "alternate" else 0.0)
    settled_s = settle_s(made, slowest_s)
    # What one chance excess of the load asks for is held: three holds make a mean. Phases of nearly
    # the same length would be a season.
    seconds = settled_s + max(60.0, 3 * slowest_s, 3 * made.hold_s()) * chance.uniform(1, 2)
    mix = _mix(chance, made, spread, service_s, seconds)
    other = before
    if shape == "idle":
        mix = Mix(before.spread, before.service_s, 0.0)
    elif shape in ("held", "burst"):
        mix = Mix(spread, service_s, mix.load / service_s)
    elif shape == "alternate":
        other = _mix(chance, made, spread, other_s, seconds)
    return Phase(
        shape=shape,
        settle_s=round(settled_s, 1),
        seconds=round(seconds, 1),
        mix=mix,
        other=other,
        every_s=round(_between(chance, 5, 60), 1),
        held_s=round(_between(chance, 1, 30), 1),
    )


def _mix(
    chance: random.Random, made: Workload, spread: str, service_s: float, seconds: float
) -> Mix:
    most = made.replicas_max * made.each * _USED_MAX
    load = min(_between(chance, min(0.3, most), most), CALLS_MAX / seconds * service_s)
    if chance.random() < 0.3:
        think_s = service_s * _between(chance, 0.1, 10)
        think_s = max(think_s, load * seconds / CALLS_MAX - service_s)
        clients = max(round(load * (service_s + think_s) / service_s), 1)
        # As many as there would be calls of an open loop, or one that thinks for longer.
        think_s = max(think_s, clients * seconds / CALLS_MAX - service_s)
        return Mix(spread, service_s, 0.0, clients, think_s)
    return Mix(spread, service_s, load / service_s)


def _between(chance: random.Random, least: float, most: float) -> float:
    """Return a number whose logarithm is even between those of both."""
    return math.exp(chance.uniform(math.log(least), math.log(most)))
