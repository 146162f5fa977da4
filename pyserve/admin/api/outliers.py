"""Finds replicas that are outliers among their siblings, and in what respect. Pure.

A replica is *slow* if two things hold:

- It is slow by a factor that matters: the times below which a tenth, half and nine tenths of its
  calls lie, and its mean, are each at least ``FACTOR_MIN`` times those of its siblings. A replica
  that merely got more of the long calls has the same short ones, and one that began with a few
  cold calls has the same others, so neither is slow.
- Chance does not explain it. The ranks of its calls' times are compared with those of its siblings
  (Mann and Whitney, 1947); where all times lie in a few buckets, which leaves ranks little to tell,
  the means are.

It is *failing* if the share of its calls that fail exceeds that of its siblings by
``FAILED_SHARE_MORE``, and chance does not explain that.

What chance explains is bounded by large deviations (Chernoff, 1952; Hoeffding, 1963) instead of
estimated from a normal distribution: of five calls, or of failures that are one in ten thousand, no
sum is normal. The level follows from how often a deployment may be called faulty that is not, see
``ALARMS_PER_HOUR``.

Where replicas serve several methods, each is compared by itself, as the replicas timed it: which
replica gets which calls is no difference between them then. Replicas of other nodes do not say
that, and routers time attempts without their methods, so all calls are compared there.

Siblings are represented by their medians, so a minority of them may be slow too. Being faster than
the others is not a fault. A replica that fails, which may be fast, does not count among the
siblings whose times are compared.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from pyserve.admin.histograms import Histogram, total

FACTOR_MIN = 1.5
"""Replicas that differ by less are alike, as machines of one kind are."""

FAILED_SHARE_MORE = 0.01
"""Even a significant difference may be too small to matter."""

ALARMS_PER_HOUR = 0.001
"""The accepted rate of false alarms per deployment, per hour of watching it."""

LOOKS_PER_HOUR = 1800
"""One every two seconds. Each one, and each replica, is another chance for a false alarm."""

CALLS_MIN = 5
"""Fewer may all be the cold first ones of a new process."""

# Times of the first bucket may be far below its bound, those of the last far above.
_LOG_SCALE_MAX = 10.0
_LOG_SCALE_ERROR = 1e-4

_QUANTILES = (0.1, 0.5, 0.9)
# Slow by ranks, slow by means, failing.
_TESTS = 3


@dataclass(frozen=True, slots=True)
class Served:
    """The recent calls of a replica.

    Attributes:
        calls: That ended, failed ones among them.
        failed: Those of them by the replica's fault.
        times: How long they took, as measured by routers.
        methods: The same by method, as measured by the replica; empty: unknown.
    """

    calls: int
    failed: int
    times: Histogram
    methods: Mapping[str, Histogram] = field(default_factory=dict)


def outliers(served: Mapping[str, Served]) -> dict[str, str]:
    """Return in a few words what sets each outlier apart."""
    busy = {name: each for name, each in served.items() if each.calls >= CALLS_MIN}
    if len(busy) < 2:
        return {}
    log_level = math.log(ALARMS_PER_HOUR / LOOKS_PER_HOUR / len(busy) / _TESTS)
    failing = _failing(busy, log_level)
    slow = _slow_somewhere(busy, failing, log_level)
    return {
        name: "; ".join(words)
        for name in busy
        if (words := [found[name] for found in (slow, failing) if name in found])
    }


def _failing(busy: Mapping[str, Served], log_level: float) -> dict[str, str]:
    shares = {name: each.failed / each.calls for name, each in busy.items()}
    ordered = sorted(shares.values())
    calls = sum(each.calls for each in busy.values())
    failed = sum(each.failed for each in busy.values())
    found: dict[str, str] = {}

    def differs(name: str) -> bool:
        nonlocal calls, failed
        share, usual = shares[name], _usual(ordered, shares[name])
        if share - usual <= FAILED_SHARE_MORE:
            return False
        own = busy[name].calls - busy[name].failed, busy[name].failed
        others = calls - failed - own[0], failed - own[1]
        if not _differ(own, others, (0.0, 1.0), log_level):
            return False
        found[name] = f"{share:.1%} of its calls fail, {usual:.1%} of its siblings'"
        calls, failed = calls - sum(own), failed - own[1]
        return True

    _judge(sorted(shares, key=shares.__getitem__, reverse=True), differs)
    return found


def _judge(names: Sequence[str], differs: Callable[[str], bool]) -> None:
    """Judge each name until no more differ.

    One that differs no longer counts among the siblings. Those that were judged before it may have
    looked like their siblings only because of it, so they are judged again.
    """
    left, judged = list(names), -1
    while len(left) != judged:
        judged = len(left)
        left = [name for name in left if not differs(name)]


def _slow_somewhere(
    busy: Mapping[str, Served], failing: Mapping[str, str], log_level: float
) -> dict[str, str]:
    methods = sorted({method for each in busy.values() for method in each.methods})
    if len(methods) < 2 or not all(each.methods for each in busy.values()):
        factors = _slow({name: each.times for name, each in busy.items()}, failing, log_level)
        return {name: _slow_words(factor) for name, factor in factors.items()}
    found: dict[str, tuple[float, str]] = {}
    for method in methods:
        times = {
            name: each.methods[method] for name, each in busy.items() if method in each.methods
        }
        for name, factor in _slow(times, failing, log_level - math.log(len(methods))).items():
            found[name] = max(found.get(name, (0.0, "")), (factor, method))
    return {name: f"{_slow_words(factor)} in {method}" for name, (factor, method) in found.items()}


def _slow_words(factor: float) -> str:
    return f"{factor:.1f} × as slow as its siblings"


def _slow(
    times: Mapping[str, Histogram], failing: Mapping[str, str], log_level: float
) -> dict[str, float]:
    """Return by which factor each slow replica is slow, for calls of one kind."""
    times = {name: each for name, each in times.items() if each.count >= CALLS_MIN}
    factors = _factors(times, failing)
    measures = total(each for name, each in times.items() if name not in failing)
    found: dict[str, float] = {}

    def differs(name: str) -> bool:
        nonlocal measures
        own = times[name]
        others = measures if name in failing else measures.since(own)
        if not (_ranks_differ(own, others, log_level) or _means_differ(own, others, log_level)):
            return False
        found[name] = factors[name][-1]
        measures = others
        return True

    plain = [name for name in factors if min(factors[name]) >= FACTOR_MIN]
    _judge(sorted(plain, key=lambda name: min(factors[name]), reverse=True), differs)
    return found


def _factors(times: Mapping[str, Histogram], failing: Mapping[str, str]) -> dict[str, list[float]]:
    """Say for each replica how many times as long as its siblings' each of its marks is."""
    marks = {name: _marks(each) for name, each in times.items()}
    measures = [each for name, each in marks.items() if name not in failing]
    columns = [sorted(each) for each in zip(*measures, strict=True)]
    return {
        name: [
            mark / usual if (usual := _usual(column, None if name in failing else mark)) else 0.0
            for mark, column in zip(each, columns, strict=True)
        ]
        for name, each in marks.items()
        if len(measures) > (name not in failing)
    }


def _usual(ordered: Sequence[float], left_out: float | None) -> float:
    """Return the median of the values except one.

    Of two in the middle it is the higher, lest one fast replica of three make the others slow.
    """
    if left_out is None:
        return ordered[len(ordered) // 2]
    middle = (len(ordered) - 1) // 2
    return ordered[middle + (middle >= bisect_left(ordered, left_out))]


def _marks(times: Histogram) -> tuple[float, ...]:
    """Return a few quantiles, and last the mean, which is the only one that is exact."""
    where = _places(times)
    upto = list(accumulate(times.counts))
    quantiles = (
        next(at_s for at_s, count in zip(where, upto, strict=True) if count >= share * upto[-1])
        for share in _QUANTILES
    )
    mean_s = times.mean_s
    assert mean_s is not None, "there are calls"
    return (*quantiles, mean_s)


def _places(times: Histogram) -> list[float]:
    """Say for each bucket where in it its times are, such that their sum is the one that is known.

    Times that are all alike are found exactly, also near a bound.
    """
    bounds = (0.0, *times.bounds, math.inf)
    buckets = [
        (count, lower, _middle(lower, upper), upper)
        for count, (lower, upper) in zip(times.counts, pairwise(bounds), strict=True)
    ]
    taken = [each for each in buckets if each[0]]

    def sum_s(scale: float) -> float:
        return sum(
            count * min(max(middle * scale, lower), upper) for count, lower, middle, upper in taken
        )

    low, high = -_LOG_SCALE_MAX, _LOG_SCALE_MAX
    while high - low > _LOG_SCALE_ERROR:
        middle = (low + high) / 2
        low, high = (middle, high) if sum_s(math.exp(middle)) < times.sum_s else (low, middle)
    scale = math.exp(high)
    return [min(max(middle * scale, lower), upper) for _, lower, middle, upper in buckets]


def _middle(lower: float, upper: float) -> float:
    if not lower:
        return upper / 2
    return 2 * lower if math.isinf(upper) else math.sqrt(lower * upper)


def _ranks_differ(own: Histogram, others: Histogram, log_level: float) -> bool:
    """Say whether own calls are slower by rank, with any one of the bounds left out.

    Times that lie beside a bound cross it by a small difference, so no verdict hangs on one.
    """
    together = [mine + other for mine, other in zip(own.counts, others.counts, strict=True)]
    # Beside an empty bucket, a bound that is left out changes nothing.
    both_sides = [index for index, pair in enumerate(pairwise(together)) if all(pair)]
    return all(
        _joined_ranks_differ(own.counts, others.counts, index, log_level)
        for index in (None, *both_sides)
    )


def _joined_ranks_differ(
    own: Sequence[int], others: Sequence[int], index: int | None, log_level: float
) -> bool:
    if index is not None:
        own, others = _joined(own, index), _joined(others, index)
    together = [mine + other for mine, other in zip(own, others, strict=True)]
    count = sum(together)
    ranks = [
        (below - each / 2) / count
        for below, each in zip(accumulate(together), together, strict=True)
    ]
    return _differ(own, others, ranks, log_level)


def _joined(counts: Sequence[int], index: int) -> Sequence[int]:
    """Return the counts of buckets without the bound above one of them."""
    return (*counts[:index], counts[index] + counts[index + 1], *counts[index + 2 :])


def _means_differ(own: Histogram, others: Histogram, log_level: float) -> bool:
    """Say the same of means, by Hoeffding's bound for times between the bounds that were seen."""
    seen = [
        index
        for index, counts in enumerate(zip(own.counts, others.counts, strict=True))
        if any(counts)
    ]
    if not own.count or not others.count or seen[-1] == len(own.bounds):
        return False
    bounds = (0.0, *own.bounds)
    width_s = bounds[seen[-1] + 1] - bounds[seen[0]]
    more_s = max(0.0, own.sum_s / own.count - others.sum_s / others.count)
    log_chance = -2 * (more_s / width_s) ** 2 / (1 / own.count + 1 / others.count)
    return log_chance <= log_level


def _differ(
    own: Sequence[int], others: Sequence[int], scores: Sequence[float], log_level: float
) -> bool:
    """Say whether chance does not explain by how much one mean score exceeds another.

    The chance is bounded as Chernoff has it, for samples of one distribution: that of both
    together.

    Args:
        own: How often each score occurs in the sample that may be greater.
        others: The same in the other one.
        scores: Between 0 and 1.
        log_level: The logarithm of the chance that is no explanation.
    """
    count, count_others = sum(own), sum(others)
    if not count or not count_others:
        return False
    more = _mean(own, scores) - _mean(others, scores)
    if more <= 0:
        return False
    shares = [
        (score, (mine + other) / (count + count_others))
        for score, mine, other in zip(scores, own, others, strict=True)
        if mine + other
    ]

    def log_chance(tilt: float) -> float:
        return (
            count * _log_moment(shares, tilt / count)
            + count_others * _log_moment(shares, -tilt / count_others)
            - tilt * more
        )

    # Every tilt gives a valid bound. That of a normal distribution is near the best one, and
    # enough where the difference is plain.
    mean = sum(score * share for score, share in shares)
    variance = sum(share * (score - mean) ** 2 for score, share in shares)
    tilt = more / variance / (1 / count + 1 / count_others)
    return log_chance(tilt) <= log_level or _least(log_chance, tilt) <= log_level


def _mean(counts: Sequence[int], scores: Sequence[float]) -> float:
    return sum(count * score for count, score in zip(counts, scores, strict=True)) / sum(counts)


def _log_moment(shares: Sequence[tuple[float, float]], tilt: float) -> float:
    """Return the cumulant generating function, without overflow."""
    top = max(tilt * score for score, _ in shares)
    return top + math.log(sum(share * math.exp(tilt * score - top) for score, share in shares))


def _least(function: Callable[[float], float], scale: float) -> float:
    """Return about the least value of a convex function of numbers up to a few times a scale."""
    low, high = 0.0, 4 * scale
    while high - low > 0.01 * scale:
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if function(first) < function(second) else (first, high)
    return function((low + high) / 2)
