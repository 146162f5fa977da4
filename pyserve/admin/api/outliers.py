"""Which replica is an outlier among its siblings, and in what. Pure.

A replica is *slow* if the modified z-score of its mean service time among its siblings exceeds
3.5 (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993), which is
0.6745 * (mean - median) / MAD.
With few siblings, or equal ones, the median absolute deviation says little, so it counts as a
fifth of the median at least: a replica is slow from about twice the median on. One with few calls
has to be so by its median too.

It is *failing* if the share of its calls that fail exceeds that of its siblings in a two-proportion
z-test (pooled variance) by 3 standard errors, and by at least a hundredth: what is certain may
still be too little to look at.

Faster than the others is no fault. One that fails, which may be fast, is no measure for the times
of others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

_Z_SCORE_MAX = 3.5
# What makes the median absolute deviation comparable with a standard deviation, by the same source.
_Z_SCALE = 0.6745
_DEVIATION_SHARE_MIN = 0.2
_STANDARD_ERRORS = 3.0
_FAILED_SHARE_MORE = 0.01
CALLS_MIN = 5
"""Fewer say nothing. Few they may be: routers soon avoid a slow replica. Arbitrary."""

# Of so many calls a slow one, the first of a new process for example, makes no mean; of fewer the
# median has to say the same. Arbitrary.
_CALLS_MANY = 30


@dataclass(frozen=True, slots=True)
class Served:
    """What a replica did of late.

    Attributes:
        calls: That ended, failed ones among them.
        failed: Those of them by the replica's fault.
        mean_s: How long they took; ``None`` of none.
        median_s: The same.
    """

    calls: int
    failed: int
    mean_s: float | None
    median_s: float | None


def outliers(served: Mapping[str, Served]) -> dict[str, str]:
    """Say of each replica that is an outlier what sets it apart, in a few words."""
    busy = {name: each for name, each in served.items() if each.calls >= CALLS_MIN}
    failing = {
        name: words
        for name, each in busy.items()
        if (words := _failing(each, [other for key, other in busy.items() if key != name]))
    }
    sound = {name: each for name, each in busy.items() if name not in failing}
    found = {}
    for name, each in busy.items():
        slow = _slow(each, [other for key, other in sound.items() if key != name])
        if words := "; ".join(filter(None, (slow, failing.get(name)))):
            found[name] = words
    return found


def _slow(served: Served, siblings: list[Served]) -> str:
    means = [each.mean_s for each in siblings if each.mean_s is not None]
    if served.mean_s is None or not means:
        return ""
    median = statistics.median(means)
    deviation = statistics.median(abs(mean - median) for mean in means)
    deviation = max(deviation, _DEVIATION_SHARE_MIN * median)
    if not deviation or _Z_SCALE * (served.mean_s - median) / deviation <= _Z_SCORE_MAX:
        return ""
    if served.calls < _CALLS_MANY and not _is_slow_mostly(served, siblings):
        return ""
    return f"{served.mean_s / median:.1f} × as slow as its siblings"


def _is_slow_mostly(served: Served, siblings: list[Served]) -> bool:
    """Say whether most of its calls took longer than most of theirs, by what shows in buckets."""
    medians = [each.median_s for each in siblings if each.median_s is not None]
    return (
        served.median_s is not None
        and bool(medians)
        and served.median_s > 2 * statistics.median(medians)
    )


def _failing(served: Served, siblings: list[Served]) -> str:
    calls = sum(each.calls for each in siblings)
    if not calls:
        return ""
    failed = sum(each.failed for each in siblings)
    share, of_others = served.failed / served.calls, failed / calls
    pooled = (served.failed + failed) / (served.calls + calls)
    error = math.sqrt(pooled * (1 - pooled) * (1 / served.calls + 1 / calls))
    if not error or share - of_others <= max(_FAILED_SHARE_MORE, _STANDARD_ERRORS * error):
        return ""
    return f"{share:.1%} of its calls fail, {of_others:.1%} of its siblings'"
