"""Changes of the call mix that have been reported, and the terms in which all of them are written.

A case is an application and the phases of its load. Nothing here runs a call.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Door = Literal["http", "grpc", "handle"]
Style = Literal["awaits", "blocks", "threads", "bounded", "batches"]
Shape = Literal["constant", "exponential", "heavy"]
# How a call's mean is chosen between ``low_ms`` and ``high_ms``: one of the two at random, one of
# the two in turns, or any value between them.
Choice = Literal["either", "turns", "range"]

# No heavy-tailed call takes more than this many times its mean: a longer one would outlast the
# phase, and its end would decide the case. The bound takes 1/40 off the mean.
_HEAVY_MAX = 10.0
BATCH_SIZE = 8
BATCH_WINDOW_S = 0.002


@dataclass(frozen=True)
class Work:
    """How long the calls of a phase take.

    Attributes:
        shape: Of the distribution around each call's mean; ``heavy`` is Pareto with exponent 2.
        low_ms: The least mean.
        high_ms: The greatest mean.
        choice: Of the mean of each call.
    """

    shape: Shape
    low_ms: float
    high_ms: float
    choice: Choice = "either"

    @property
    def mean_s(self) -> float:
        """The mean over all calls."""
        return (self.low_ms + self.high_ms) / 2 / 1e3

    def draws(self, draw: random.Random) -> Iterator[float]:
        """Yield the durations in milliseconds, in the order in which calls begin."""
        number = 0
        while True:
            yield round(self._around(self._mean(number, draw), draw), 2)
            number += 1

    def _mean(self, number: int, draw: random.Random) -> float:
        if self.choice == "range":
            return draw.uniform(self.low_ms, self.high_ms)
        index = number % 2 if self.choice == "turns" else draw.randrange(2)
        return (self.low_ms, self.high_ms)[index]

    def _around(self, mean_ms: float, draw: random.Random) -> float:
        if self.shape == "exponential":
            return draw.expovariate(1 / mean_ms)
        if self.shape == "heavy":
            return min(_HEAVY_MAX * mean_ms, mean_ms / 2 * draw.paretovariate(2.0))
        return mean_ms


@dataclass(frozen=True)
class Phase:
    """A part of a case with one mix of calls.

    Attributes:
        work: Of its calls.
        seconds: How long calls begin.
        rate: Open loop: calls per second, Poisson arrivals; 0: it is a closed loop.
        callers: Closed loop: each calls again as soon as it was answered.
        calls: Closed loop: the phase ends after so many calls, and is not judged; 0: after
            ``seconds``.
    """

    work: Work
    seconds: float
    rate: float = 0.0
    callers: int = 0
    calls: int = 0

    @property
    def is_judged(self) -> bool:
        """Whether its figures decide; a prelude of so many calls only prepares the next phase."""
        return not self.calls

    def arrivals_s(self, draw: random.Random) -> list[float]:
        """Return when the calls of an open loop fall due, in seconds after the phase's begin."""
        due_s, moments = draw.expovariate(self.rate), []
        while due_s < self.seconds:
            moments.append(due_s)
            due_s += draw.expovariate(self.rate)
        return moments


@dataclass(frozen=True)
class Case:
    """A change of the mix.

    Attributes:
        name: Unique in a run.
        style: What the replicas do with a call.
        replicas: How many there are.
        limit: ``max_ongoing_requests``.
        phases: In their order.
        door: How the calls come.
        permits: Of the semaphore in each ``bounded`` replica.
    """

    name: str
    style: Style
    replicas: int
    limit: int
    phases: tuple[Phase, ...]
    door: Door = "http"
    permits: int = 0

    def draws(self, seed: int, phase: int, what: str) -> random.Random:
        """Return the random numbers of a phase's arrivals or work; both policies get the same."""
        return random.Random(f"{seed}/{self.name}/{phase}/{what}")

    @property
    def seconds_max(self) -> float:
        """How long its phases last at most."""
        return sum(each.seconds for each in self.phases)


def _constant(ms: float) -> Work:
    return Work("constant", ms, ms)


def _prelude(calls: int, ms: float) -> Phase:
    # Twice what the calls themselves take, and a second.
    return Phase(_constant(ms), calls * ms * 2e-3 + 1.0, callers=1, calls=calls)


def _reported_table() -> Sequence[Case]:
    """Twelve callers of long calls, and what came before them.

    A rule that compares what it has learnt with what it sees now needs 48 answers or more of the
    new mix before it errs: two seconds of the longest calls. The rest of the phase shows it.
    """
    nothing = Phase(_constant(300), 3.0, callers=12)
    twelve = Phase(_constant(300), 5.0, callers=12)
    turns = Phase(Work("constant", 3, 300, "turns"), 4.0, callers=12)
    fifteen = Phase(_constant(15), 5.0, callers=2)
    five_hundred = Phase(_constant(500), 6.0, callers=12)
    return (
        Case("nothing, 300 ms", "awaits", 1, 100, (nothing,)),
        Case("60 of 5 ms, 300 ms", "awaits", 1, 100, (_prelude(60, 5), twelve)),
        Case("200 by a handle, 300 ms", "awaits", 1, 100, (_prelude(200, 5), twelve), "handle"),
        Case("15 ms for 5 s, 500 ms", "awaits", 1, 100, (fifteen, five_hundred), "grpc"),
        Case("60 of 3 ms, 3 and 300 ms", "awaits", 2, 100, (_prelude(60, 3), turns)),
    )


def _reported_loops() -> Sequence[Case]:
    """Open loops, alone and beside closed ones."""
    one = (
        Phase(_constant(4), 4.0, rate=600),
        Phase(Work("exponential", 47, 47), 3.0, rate=600),
        Phase(_constant(11), 3.0, callers=6),
    )
    two = (
        Phase(_constant(2), 3.0, callers=1),
        Phase(Work("exponential", 90, 180, "range"), 3.0, rate=154),
        Phase(Work("heavy", 6, 41), 3.0, rate=400),
    )
    wide = (
        Phase(Work("constant", 26, 336, "range"), 3.0, rate=122),
        Phase(Work("constant", 13, 61, "range"), 3.0, rate=439),
    )
    batches = (
        Phase(Work("constant", 9, 39), 3.0, callers=6),
        Phase(Work("heavy", 2, 2), 3.0, rate=600),
    )
    few = (Phase(Work("heavy", 3, 3), 3.0, callers=2),)
    return (
        Case("4 ms, 47 ms, 11 ms", "awaits", 1, 64, one),
        Case("2 ms, 90 to 180 ms, 6 and 41 ms", "awaits", 2, 64, two, "grpc"),
        Case("26 to 336 ms, 13 to 61 ms", "awaits", 2, 100, wide, "handle"),
        Case("batches of 9 and 39 ms, 2 ms", "batches", 2, 5, batches),
        Case("batches of 3 ms", "batches", 3, 100, few, "grpc"),
    )


def reported() -> tuple[Case, ...]:
    """Return the changes that have been reported as they were played there."""
    return (*_reported_table(), *_reported_loops())
