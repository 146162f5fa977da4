"""A family of workloads that change while they run: pure, drawn from a seed.

Each has two or three phases. From one to the next anything may change: what a step costs (by up
to a hundred times either way), how calls come, how many callers there are, how large items are.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from benchmarks.batching_rules import Step
from pyserve.batching.steps import RUNS_MIN

# A rule learns from the newest 50 steps (`steps.py`) or 32 gaps (`auto.py`). So a phase is
# judged after as many steps of its own and some more, and for twice as long.
SETTLE_STEPS = 60
# Where steps have become faster, each of the runs that show it (`RUNS_MIN`) may have waited for
# half of an old step before.
OLD_STEPS = RUNS_MIN / 2
JUDGED_STEPS = 120
# Deadlines, in steps of the largest item. To leave in time for the earliest one is a promise to
# its caller, which costs all others where deadlines are as short as a step.
DEADLINES = (4.0, 20.0)
# A phase that needs more calls than that is drawn again: it would take too long to play.
CALLS_MAX = 3_000


@dataclass(frozen=True)
class Phase:
    """The calls of some time, and their cost.

    Attributes:
        step: What a batch costs at the end of the phase, with a drift; else in all of it.
        drifts: Whether the step moves from that of the phase before, at a steady pace.
        rate: Calls/s of the open loop; 0: none.
        burst: Calls that come together, within a tenth of the step's fixed part.
        callers: Of the closed loop; 0: none.
        think_s: The mean time from a caller's answer to its next call.
        item_max: Sizes of items are uniform from 1 to that.
        deadline_s: What each call allows; infinite: any time.
        settle_s, seconds: When it is judged from, and how long it is.
    """

    step: Step
    drifts: bool = False
    rate: float = 0.0
    burst: int = 1
    callers: int = 0
    think_s: float = 0.0
    item_max: int = 1
    deadline_s: float = math.inf
    settle_s: float = 0.0
    seconds: float = 0.0

    @property
    def item_mean(self) -> float:
        return (1 + self.item_max) / 2


@dataclass(frozen=True)
class Workload:
    """Phases for one batcher; ``jitter`` is the standard deviation of a step's logarithm."""

    seed: int
    size_max: int
    executors: int
    jitter: float
    phases: tuple[Phase, ...]

    def load(self, index: int) -> float:
        """Return what share of full batches' capacity the open loop of a phase asks for."""
        phase = self.phases[index]
        capacity = self.executors * phase.step.capacity(self.size_max) / phase.item_mean
        return phase.rate / capacity


def draw(seed: int, calls_max: int = CALLS_MAX) -> Workload:
    """Return the workload of a seed, whose phases have up to ``calls_max`` calls."""
    chance = random.Random(seed)
    size_max = chance.choice((2, 4, 8, 16, 32, 64, 128, 256))
    executors = chance.choice((1, 1, 1, 2, 4))
    fixed_s = _between(chance, 1e-4, 1.0)
    base = Step(fixed_s, fixed_s * chance.choice((0.0, _between(chance, 1e-3, 2.0))))
    phases: list[Phase] = []
    wanted = chance.choice((2, 3))
    returns = wanted == 3 and chance.random() < 0.5  # the third is the first again
    while len(phases) < (2 if returns else wanted):
        before = phases[-1] if phases else None
        phase = _phase(chance, base, size_max, executors, before.step if before else None)
        phase = _timed(phase, before, size_max, executors)
        if _calls(phase, size_max, executors) <= calls_max:
            phases.append(phase)
    if returns:
        again = phases[0]
        phases.append(_timed(again, phases[1], size_max, executors))
    jitter = chance.choice((0.0, 0.05, 0.2))
    return Workload(seed, size_max, executors, jitter, tuple(phases))


def _phase(
    chance: random.Random, base: Step, size_max: int, executors: int, before: Step | None
) -> Phase:
    factor = chance.choice((1.0, 1.0, 0.01, 100.0, _between(chance, 0.01, 100.0)))
    step = base if before is None else Step(base.fixed_s * factor, base.per_item_s * factor)
    phase = Phase(
        step,
        drifts=before is not None and chance.random() < 0.2,
        item_max=chance.choice((1, 1, 1, max(1, size_max // 8))),
    )
    # A drift begins with the step of before: what that cannot serve would pile up or be late.
    slowest = max(step, before or step, key=lambda each: each.fixed_s) if phase.drifts else step
    kind = chance.choice(("poisson", "bursts", "closed", "closed", "both"))
    if kind != "closed":
        load = chance.uniform(0.05, 0.4) if kind == "both" else chance.uniform(0.05, 1.2)
        rate = load * executors * slowest.capacity(size_max) / phase.item_mean
        burst = int(_between(chance, 2, 32)) if kind == "bursts" else 1
        phase = replace(phase, rate=rate, burst=burst)
    if kind in {"closed", "both"}:
        think_s = step.fixed_s * _between(chance, 0.001, 3.0)
        phase = replace(phase, callers=int(_between(chance, 1, 257)), think_s=think_s)
    if chance.random() < 0.25:
        alone_s = slowest.duration_s(phase.item_max)
        phase = replace(phase, deadline_s=alone_s * _between(chance, *DEADLINES) + 0.004)
    return phase


def _timed(phase: Phase, before: Phase | None, size_max: int, executors: int) -> Phase:
    """Return the phase with its times, as far as they follow from what comes."""
    slowest = phase
    if phase.drifts and before is not None and before.step.fixed_s > phase.step.fixed_s:
        slowest = replace(phase, step=before.step)  # Faster, it would be a jump and no drift.
    pace_s = _pace_s(slowest, size_max, executors)
    settle_s = SETTLE_STEPS * pace_s
    if before is not None:
        settle_s += OLD_STEPS * max(0.0, before.step.fixed_s - phase.step.fixed_s)
    return replace(phase, settle_s=settle_s, seconds=settle_s + JUDGED_STEPS * pace_s)


def _pace_s(phase: Phase, size_max: int, executors: int) -> float:
    """Return about how long it is from one step to the next, on each executor."""
    step = phase.step
    size = min(size_max, max(phase.callers / executors, 1) * phase.item_mean)
    idle_s = phase.think_s
    if phase.rate:
        share = phase.rate * phase.item_mean / executors
        spare = 1 - share * step.per_item_s
        came = share * step.fixed_s / spare if spare > 0 else math.inf
        size = min(size_max, max(size, came))
        idle_s = phase.burst / phase.rate
    return step.duration_s(size) + idle_s


def _calls(phase: Phase, size_max: int, executors: int) -> float:
    """Return about how many calls a phase has at most."""
    served = executors * phase.step.capacity(size_max) / phase.item_mean
    closed = min(served, phase.callers / (phase.step.duration_s(1) + phase.think_s))
    return phase.seconds * (phase.rate + closed)


def _between(chance: random.Random, low: float, high: float) -> float:
    """Draw a number whose logarithm is uniform."""
    return math.exp(chance.uniform(math.log(low), math.log(high)))
