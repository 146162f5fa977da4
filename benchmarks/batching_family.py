"""The learnt wait against fixed windows, on workloads that change while they run.

Every rule gets the same calls, thinking times and sizes, in virtual time, and each phase is
judged for itself: against the fixed window that is the best for it alone.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.batching_workloads import CALLS_MAX, Phase, Workload, draw
from pyserve.batching import Batch, Batcher, BatchOptions

# Fixed windows, as parts of the fixed cost of each phase.
WINDOW_PARTS = (0.05, 0.15, 0.4, 1.0)
GOODPUT_MIN = 0.97
LATENCY_MAX = 1.10
# Where the best window answers fewer of the calls in time, most have waited for longer than they
# allow before anything is decided, and it is chance who has not.
IN_TIME_MIN = 0.5

# Closer to capacity a queue takes hundreds of steps to settle: its mean latency over one phase is
# chance, and only its goodput is judged.
LOAD_MAX = 0.8
# Each workload is played with two sub-seeds, and with eight others if it falls short.
SUB_SEEDS = range(2)
MORE_SUB_SEEDS = range(2, 10)

Wait = float | str


@dataclass
class Tally:
    """The results of a rule in one phase, for the calls that came after it had settled."""

    came: int = 0
    good: int = 0  # answered in time, within the phase
    refused: int = 0
    latency_s: float = 0.0  # the sum over all that came

    def add(self, other: Tally) -> None:
        self.came += other.came
        self.good += other.good
        self.refused += other.refused
        self.latency_s += other.latency_s

    @property
    def mean_s(self) -> float:
        return self.latency_s / self.came if self.came else 0.0


@dataclass(slots=True)
class _Call:
    came: float
    deadline: float
    size: int
    caller: random.Random | None  # of a closed loop: its thinking times


@dataclass(frozen=True)
class Finding:
    """How the learnt wait did in one phase, as a part of the best fixed window there.

    Attributes:
        workload, phase: What was played, and which of its phases this is about.
        goodput: Calls answered in time; of the window that answers most of them.
        latency: The mean; of the quickest window whose goodput is near the best one.
    """

    workload: Workload
    phase: int
    goodput: float
    latency: float

    @property
    def is_regret(self) -> bool:
        return self.goodput < GOODPUT_MIN or self.latency > LATENCY_MAX

    def told(self) -> str:
        """Say what was found, with all that it takes to play it again."""
        return (
            f"phase {self.phase} of seed {self.workload.seed}: {self.goodput:.3f} of the goodput "
            f"and {self.latency:.3f} of the mean latency of the best fixed window; {self.workload}"
        )


class Player:
    """Plays one workload with one rule, as the driver in ``queue.py`` would."""

    def __init__(self, workload: Workload, wait: Wait, sub_seed: int) -> None:
        self._workload = workload
        self._seed = f"{workload.seed}/{sub_seed}"
        self._jitter = random.Random(self._seed)
        options = BatchOptions(
            max_batch_size=workload.size_max, max_concurrent_batches=workload.executors
        ).updated(batch_wait_timeout_s=wait)
        self.batcher: Batcher[_Call] = Batcher(options, lambda _: True)
        self.tallies = [Tally() for _ in workload.phases]
        self._now = self._begin = 0.0
        self._serial = itertools.count()
        self._coming: list[tuple[float, int, _Call]] = []
        self._running: list[tuple[float, int, float, Batch[_Call]]] = []

    def play(self) -> list[Tally]:
        """Play to the end and return what each phase brought.

        A phase begins when the one before has been answered to the end: else its backlog would
        be judged with the next one.
        """
        for index, phase in enumerate(self._workload.phases):
            self._index, self._phase, self._begin = index, phase, self._now
            self._tally = self.tallies[index]
            draw = random.Random(f"{self._seed}/{index}")
            if phase.rate:
                for after_s in arrivals(phase, draw):
                    self._push(after_s, draw.randint(1, phase.item_max), None)
            for number in range(phase.callers):
                self._return(random.Random(f"{self._seed}/{index}/{number}"))
            while self._coming or self._running or len(self.batcher):
                self._step()
        return self.tallies

    def _return(self, caller: random.Random, after_s: float = 0.0) -> None:
        after_s += self._now - self._begin + self._phase.think_s * caller.uniform(0.5, 1.5)
        size = caller.randint(1, self._phase.item_max)
        if after_s < self._phase.seconds:
            self._push(after_s, size, caller)

    def _push(self, after_s: float, size: int, caller: random.Random | None) -> None:
        at = self._begin + after_s
        call = _Call(at, at + self._phase.deadline_s, size, caller)
        heapq.heappush(self._coming, (at, next(self._serial), call))

    def _step(self) -> None:
        batcher = self.batcher
        wakeup = batcher.next_wakeup()
        end = self._running[0][0] if self._running else math.inf
        arrival = self._coming[0][0] if self._coming else math.inf
        now = self._now = min(arrival, end, math.inf if wakeup is None else wakeup)
        if end == now:
            self._end()
        elif arrival == now:
            call = heapq.heappop(self._coming)[2]
            batcher.add(call, now, deadline=call.deadline, size=call.size)
        while (taken := batcher.take(now)) is not None:
            done = now + self._duration_s(taken.size)
            heapq.heappush(self._running, (done, next(self._serial), now, taken))
        for call, _ in batcher.drops():
            self._refuse(call)

    def _end(self) -> None:
        _, _, started, batch = heapq.heappop(self._running)
        now, tally, phase = self._now, self._tally, self._phase
        self.batcher.learn(batch.size, now - started)
        self.batcher.complete(batch, now)
        for call in batch.items:
            if call.came >= self._begin + phase.settle_s:
                tally.came += 1
                tally.latency_s += now - call.came
                tally.good += now <= min(call.deadline, self._begin + phase.seconds)
            if call.caller is not None:
                self._return(call.caller)

    def _refuse(self, call: _Call) -> None:
        self._tally.refused += call.came >= self._begin + self._phase.settle_s
        if call.caller is not None:  # It does not ask again at once.
            self._return(call.caller, self._phase.step.duration_s(call.size))

    def _duration_s(self, size: float) -> float:
        phase = self._phase
        seconds = phase.step.duration_s(size)
        if phase.drifts:
            before = self._workload.phases[self._index - 1].step.duration_s(size)
            part = min(1.0, (self._now - self._begin) / phase.seconds)
            seconds = before ** (1 - part) * seconds**part
        if self._workload.jitter:
            seconds *= self._jitter.lognormvariate(0.0, self._workload.jitter)
        return seconds


def arrivals(phase: Phase, draw: random.Random) -> Iterator[float]:
    """Return when the calls of an open loop come, in the order of their bursts."""
    at = 0.0
    while (at := at + draw.expovariate(phase.rate / phase.burst)) < phase.seconds:
        if phase.burst == 1:
            yield at
            continue
        for _ in range(phase.burst):
            yield at + draw.uniform(0, phase.step.fixed_s / 10)


def judge(workload: Workload) -> list[Finding]:
    """Compare the learnt wait with each fixed window, in each phase.

    Where it seems to be worse, that may be chance: then others decide.
    """
    findings = judge_with(workload, SUB_SEEDS)
    if any(finding.is_regret for finding in findings):
        findings = judge_with(workload, MORE_SUB_SEEDS)
    return findings


def judge_with(workload: Workload, sub_seeds: Sequence[int]) -> list[Finding]:
    """Compare the learnt wait with each fixed window, in the sum over some sub-seeds."""
    parts = {part * phase.step.fixed_s for phase in workload.phases for part in WINDOW_PARTS}
    waits: list[Wait] = ["auto", 0.0, *sorted(parts)]
    totals = {wait: [Tally() for _ in workload.phases] for wait in waits}
    for wait, sub_seed in itertools.product(waits, sub_seeds):
        tallies = Player(workload, wait, sub_seed).play()
        for total, tally in zip(totals[wait], tallies, strict=True):
            total.add(tally)
    return [
        find(workload, index, {wait: totals[wait][index] for wait in waits})
        for index in range(len(workload.phases))
    ]


def find(workload: Workload, index: int, tallies: dict[Wait, Tally]) -> Finding:
    """Judge one phase: the goodput, and without deadlines the mean latency."""
    auto = tallies["auto"]
    fixed = {wait: tally for wait, tally in tallies.items() if wait != "auto"}
    best = max(tally.good for tally in fixed.values())
    if not best or best < IN_TIME_MIN * (auto.came + auto.refused):
        return Finding(workload, index, 1.0, 1.0)
    latency = 1.0
    if workload.phases[index].deadline_s == math.inf and workload.load(index) <= LOAD_MAX:
        rivals = (tally.mean_s for tally in fixed.values() if tally.good >= GOODPUT_MIN * best)
        latency = auto.mean_s / min(rivals)
    return Finding(workload, index, auto.good / best, latency)


def family(seed: int, count: int, calls_max: int = CALLS_MAX) -> Iterator[Finding]:
    """Judge the workloads of ``count`` seeds from ``seed`` on."""
    for number in range(seed, seed + count):
        yield from judge(draw(number, calls_max))


def report(seed: int, count: int) -> int:
    """Play a family and print what falls short; 1 if anything does."""
    findings = list(family(seed, count))
    missed = [finding for finding in findings if finding.is_regret]
    for finding in missed:
        print(finding.told())
    goodput = statistics.fmean(finding.goodput for finding in findings)
    latency = statistics.fmean(finding.latency for finding in findings)
    print(
        f"seeds {seed} to {seed + count - 1}: {len(missed)} of {len(findings)} phases fall short; "
        f"on average {goodput:.3f} of the best window's goodput, {latency:.3f} of its latency"
    )
    return 1 if missed else 0
