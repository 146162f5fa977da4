"""Sums up the calls of a phase, and judges whether a policy keeps up with ``least``. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.mix_changes.cases import Case, Phase
from benchmarks.mix_changes.load import PATIENCE_S, Answer, Play, Played

# A twentieth is what two runs of one policy may differ by on a machine with neighbours.
RATIO_MIN = 0.95
ATTEMPTS_MAX = 3
# A policy may take so long to notice that the mix has changed.
_LEFT_OUT_S = 0.2


@dataclass(frozen=True)
class Figures:
    """One phase under one policy, without its first 200 ms.

    Attributes:
        per_s: A closed loop's answers a second; an open loop's answers that were in time.
        mean_ms: Latency of all calls, from when they were due; of those that were given up, until
            then.
        p99_ms: Likewise.
        calls: That fell due.
        errors: By the type of the exception; ``unanswered`` are those that were given up.
    """

    per_s: float
    mean_ms: float
    p99_ms: float
    calls: int
    errors: dict[str, int]


@dataclass(frozen=True)
class Attempt:
    """A case under both policies, one right after the other.

    Attributes:
        first: Who went first, ``ours`` or ``least``; they may be the same policy.
        ours: Figures of its phases.
        least: The same of ``least``.
        generator_share: Of one core, what the load generator took at most.
    """

    first: str
    ours: tuple[Figures, ...]
    least: tuple[Figures, ...]
    generator_share: float


@dataclass(frozen=True)
class Ratios:
    """The judged policy's figures in those of ``least``, for one phase."""

    per_s: float
    mean_ms: float
    p99_ms: float


def figures(case: Case, play: Play) -> tuple[Figures, ...]:
    """Sum up the phases of a play."""
    return tuple(
        _figures(phase, played) for phase, played in zip(case.phases, play.phases, strict=True)
    )


def _figures(phase: Phase, played: Played) -> Figures:
    begin_s = min(played.begin_s + _LEFT_OUT_S, played.end_s)
    seconds = max(played.end_s - begin_s, 1e-3)
    due = [each for each in played.answers if each.due_s >= begin_s]
    if phase.rate:
        answered = float(sum(_is_in_time(each) for each in due))
    else:
        answered = sum(_part(each, begin_s, played.end_s) for each in played.answers)
    latencies_ms = [(min(each.end_s, played.over_s) - each.due_s) * 1e3 for each in due] or [0.0]
    errors = Counter(each.error or "unanswered" for each in due if not each.is_right)
    return Figures(
        per_s=round(answered / seconds, 2),
        mean_ms=round(statistics.fmean(latencies_ms), 2),
        p99_ms=round(_p99(latencies_ms), 2),
        calls=len(due),
        errors=dict(errors),
    )


def _is_in_time(answer: Answer) -> bool:
    return answer.is_right and answer.end_s - answer.due_s <= answer.work_s + PATIENCE_S


def _part(answer: Answer, begin_s: float, end_s: float) -> float:
    """Return the part of a call that lies between two moments.

    Whole answers would be counted in steps of all callers at once, where all calls are equal: a
    tenth of what a phase of long calls has.
    """
    if not answer.is_right or answer.end_s <= answer.due_s:
        return 0.0
    inside_s = min(answer.end_s, end_s) - max(answer.due_s, begin_s)
    return max(0.0, inside_s) / (answer.end_s - answer.due_s)


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[int(0.99 * (len(ordered) - 1))]


def ratios(attempt: Attempt) -> list[Ratios]:
    """Compare the phases of an attempt."""
    return [
        Ratios(
            _ratio(ours.per_s, least.per_s),
            _ratio(ours.mean_ms, least.mean_ms),
            _ratio(ours.p99_ms, least.p99_ms),
        )
        for ours, least in zip(attempt.ours, attempt.least, strict=True)
    ]


def _ratio(ours: float, least: float) -> float:
    # Where ``least`` has nothing, the phase shows nothing, and must not pass.
    return round(ours / least, 3) if least else 0.0


def medians(attempts: Sequence[Attempt]) -> list[Ratios]:
    """Return the medians of the attempts for each phase."""
    return [
        Ratios(
            statistics.median(each.per_s for each in some),
            statistics.median(each.mean_ms for each in some),
            statistics.median(each.p99_ms for each in some),
        )
        for some in _by_phase(attempts)
    ]


def is_met(case: Case, attempts: Sequence[Attempt]) -> bool:
    """Whether no judged phase falls short of ``least``."""
    of_phases = zip(case.phases, medians(attempts), strict=True)
    return all(each.per_s >= RATIO_MIN for phase, each in of_phases if phase.is_judged)


def is_open(case: Case, attempts: Sequence[Attempt]) -> bool:
    """Whether another attempt could change the verdict of a case that fell short."""
    short = [
        sum(each.per_s < RATIO_MIN for each in some)
        for phase, some in zip(case.phases, _by_phase(attempts), strict=True)
        if phase.is_judged
    ]
    most = max(short)
    # Half of the most attempts and more: then the median is short, whatever comes.
    return len(attempts) < ATTEMPTS_MAX and 0 < most <= ATTEMPTS_MAX // 2


def _by_phase(attempts: Sequence[Attempt]) -> Iterator[tuple[Ratios, ...]]:
    return zip(*(ratios(each) for each in attempts), strict=True)
