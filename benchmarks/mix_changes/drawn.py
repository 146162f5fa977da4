"""Changes of the call mix that a seed chooses, within what one load generator can play."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.mix_changes.cases import (
    BATCH_SIZE,
    BATCH_WINDOW_S,
    Case,
    Choice,
    Door,
    Phase,
    Shape,
    Style,
    Work,
)

# The load generator has to stay well below one core, or it would be measured itself.
RATE_MAX = 600.0
CALLERS_MAX = 24
SECONDS = (3.0, 6.0)
LOAD = (0.1, 0.8)
_STYLES: tuple[Style, ...] = ("awaits", "blocks", "threads", "bounded", "batches")
_DOORS: tuple[Door, ...] = ("http", "grpc", "handle")
_SHAPES: tuple[Shape, ...] = ("constant", "exponential", "heavy")
_CHOICES: tuple[Choice, ...] = ("either", "turns", "range")
# The shortest work is near what a call itself costs; the longest leaves some calls of each caller
# in a phase, fewer where a replica works on one call at a time.
_WORK_MS_MIN = 2.0
_WORK_MS_MAX: dict[Style, float] = {
    "awaits": 400.0,
    "blocks": 40.0,
    "threads": 200.0,
    "bounded": 100.0,
    "batches": 60.0,
}
# What a call takes in its replica besides its work: its handling, and timers of whole milliseconds.
# Without it four fifths of the capacity would overload a replica that blocks for 2 ms.
_HANDLING_S = 0.001
# The mean of the longest of eight exponential durations, in their mean: 1 + 1/2 + … + 1/8. That of
# eight Pareto ones with exponent 2 is 2.5.
_LONGEST_OF_BATCH = 2.72


def drawn(seed: int, count: int) -> tuple[Case, ...]:
    """Return so many changes of the mix; the same ones for the same seed."""
    return tuple(_case(random.Random(f"{seed}/{number}"), number) for number in range(count))


def capacity(case: Case, work: Work) -> float:
    """Estimate how many calls per second the replicas of a case can answer."""
    mean_s = work.mean_s
    if case.style == "batches":
        # Of calls with different means, the longer ones decide how long a batch takes.
        longest_s = work.high_ms / 1e3
        longest_s *= 1.0 if work.shape == "constant" else _LONGEST_OF_BATCH
        return case.replicas * min(BATCH_SIZE, case.limit) / (longest_s + BATCH_WINDOW_S)
    at_once = {"blocks": 1, "bounded": case.permits}.get(case.style, case.limit)
    return case.replicas * at_once / (mean_s + _HANDLING_S)


def _case(draw: random.Random, number: int) -> Case:
    style = draw.choice(_STYLES)
    # A replica of threads gets as many of them as its limit: hundreds would be measured themselves.
    limit = draw.choice((5, 16) if style == "threads" else (5, 16, 64, 100))
    permits = draw.randint(1, limit - 1) if style == "bounded" else 0
    door = draw.choice(_DOORS)
    idle = Case(f"drawn {number:02}", style, draw.randint(1, 4), limit, (), door, permits)
    # Few have three phases: twenty cases with two policies have to fit into ten minutes.
    phases = tuple(_phase(draw, idle) for _ in range(2 + (draw.random() < 0.1)))
    return replace(idle, phases=phases)


def _phase(draw: random.Random, case: Case) -> Phase:
    work = _work(draw, _WORK_MS_MAX[case.style])
    # Short phases are likelier, for the same reason; the mean is 3.6 s.
    seconds = round(min(draw.uniform(*SECONDS) for _ in range(4)), 1)
    if draw.random() < 0.5:
        callers_max = max(1, min(CALLERS_MAX, int(RATE_MAX * work.mean_s)))
        return Phase(work, seconds, callers=draw.randint(1, callers_max))
    rate = min(RATE_MAX, draw.uniform(*LOAD) * capacity(case, work))
    return Phase(work, seconds, rate=round(rate, 1))


def _work(draw: random.Random, ms_max: float) -> Work:
    """Draw log-uniform means, so that a change of the mix is one by a factor."""
    span = ms_max / _WORK_MS_MIN
    ends = sorted(round(_WORK_MS_MIN * span ** draw.random(), 1) for _ in range(2))
    if draw.random() < 0.5:
        ends[1] = ends[0]
    return Work(draw.choice(_SHAPES), ends[0], ends[1], draw.choice(_CHOICES))
