"""Seasonal load: finds its period, and forecasts the next period from the last. Pure.

The seasonal naive forecast (the load of one period ago comes again) is used only if it has been
clearly better, at the required distance, than assuming that the load stays as it is: forecasts are
chosen by their past errors (R. J. Hyndman and A. B. Koehler, "Another look at measures of forecast
accuracy", 2006).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_BIN_S = 5.0
# Periods of a minute to half an hour, each of which must have been seen twice.
KEPT_S = 3600.0
_PERIOD_MIN = 12
# The forecast's error must be below these shares: of the error of assuming that the load stays as
# it is, and of the load.
_BETTER, _EXACT = 0.5, 0.2
_CLEARLY = 0.9
# The load has not come again if so many bins in a row had less than this share of the forecast. Two
# bins prove nothing, since an edge of the load may lie within a bin in both periods.
_MISSED, _MISSED_SHARE = 3, 0.5
# The load must vary by more than this many times what random variation explains.
_SWINGS = 2.0
# How often all periods are tried. The one that was found is tried at each bin.
_SEARCH_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast.

    Attributes:
        rate: Calls per second.
        load: Concurrent calls.
    """

    rate: float
    load: float


@dataclass(slots=True)
class _Work:
    """The time that calls spent in replicas in a bin, and how many those were."""

    busy_s: float = 0.0
    calls: float = 0.0


class SeasonalCounts:
    """Counts of calls in bins of five seconds, and how long they took.

    Args:
        now: When counting begins.
    """

    def __init__(self, now: float) -> None:
        self._bins: deque[float] = deque([0.0], maxlen=int(KEPT_S / _BIN_S) + 1)
        self._work: deque[_Work] = deque([_Work()], maxlen=self._bins.maxlen)
        self._begun = now  # Of the last bin, which is not over.
        self._period = 0
        self._searched_at = self._tried_at = -math.inf

    def add(self, count: float, now: float) -> None:
        """Add the calls that have come since the last report."""
        self._pass(now)
        self._bins[-1] += count

    def add_work(self, busy_s: float, calls: float, now: float) -> None:
        """Add the calls that ended since the last report, and the time they spent in replicas."""
        self._pass(now)
        self._work[-1].busy_s += busy_s
        self._work[-1].calls += calls

    def ahead(self, now: float, over_s: float, service_s: float) -> Forecast | None:
        """Return the highest load forecast for the next ``over_s``; None without a forecast.

        Args:
            now: Seconds.
            over_s: How far ahead.
            service_s: The duration of a call, for bins without durations of their own.
        """
        self._pass(now)
        distance = math.ceil(over_s / _BIN_S) + 1
        self._look(distance, now)
        if not self._period:
            return None
        # The bins from one period before the current one on; the load repeats beyond a period.
        begin, end = len(self._bins) - 1 - self._period, len(self._bins) - 1
        bins = {begin + index % (end - begin) for index in range(distance)}
        loads = [self._load(index, service_s) for index in bins]
        return max(loads, key=lambda each: (each.load, each.rate))

    def _load(self, index: int, service_s: float) -> Forecast:
        """Return the load of a bin, computed with the service times of its own calls if known."""
        rate, work = self._bins[index] / _BIN_S, self._work[index]
        if work.calls >= 1:
            service_s = work.busy_s / work.calls
        # Where calls outlast a bin, the running calls say more than the arrivals.
        return Forecast(rate, max(rate * service_s, work.busy_s / _BIN_S))

    def _look(self, distance: int, now: float) -> None:
        """Try the period again, or look for one."""
        if self._tried_at == self._begun:
            return
        self._tried_at = self._begun
        counts = list(self._bins)[:-1]
        if self._period and _helpful(counts, self._period, distance) < math.inf:
            return
        if self._period or now >= self._searched_at + _SEARCH_EVERY_S:
            self._period, self._searched_at = _search(counts, distance), now

    def _pass(self, now: float) -> None:
        passed = int((now - self._begun) / _BIN_S)
        if passed > 0:
            passed_bins = min(passed, self._bins.maxlen or 0)
            self._bins.extend([0.0] * passed_bins)
            self._work.extend(_Work() for _ in range(passed_bins))
            self._begun += passed * _BIN_S


def _search(counts: Sequence[float], distance: int) -> int:
    """Return the period of the counts, in bins; 0 if none of them helps at ``distance``."""
    found, least = 0, math.inf
    for period in range(_PERIOD_MIN, len(counts) // 2 + 1):
        error = _helpful(counts, period, distance)
        # Multiples of a period are hardly better.
        if error < _CLEARLY * least:
            found, least = period, error
    return found


def _helpful(counts: Sequence[float], period: int, distance: int) -> float:
    """Return the error of a forecast by that period for the last counts; inf: it does not help."""
    mean = sum(counts[-period:]) / period
    # The error of assuming that the load stays as it is: distance, but not about a period.
    as_now = _error(counts, min(distance, period // 2), period)
    if as_now <= _SWINGS * _by_chance(mean):
        return math.inf
    error = _error(counts, period, period)
    if error >= min(_BETTER * as_now, _EXACT * mean) or _has_missed(counts, period):
        return math.inf
    return error


def _has_missed(counts: Sequence[float], period: int) -> bool:
    """Return whether what was said did not come, in the last period."""
    missed = 0
    for said, came in zip(counts[-2 * period : -period], counts[-period:], strict=True):
        is_less = came < _MISSED_SHARE * said and said - came > _SWINGS * _by_chance(said)
        missed = missed + 1 if is_less else 0
        if missed == _MISSED:
            return True
    return False


def _by_chance(mean: float) -> float:
    """Return by how much two counts of independent callers differ in the mean."""
    return math.sqrt(4 * mean / math.pi)


def _error(counts: Sequence[float], distance: int, length: int) -> float:
    """Return by how much the last counts differ from those before them, in the mean."""
    end = len(counts)
    before = counts[end - length - distance : end - distance]
    return sum(abs(a - b) for a, b in zip(counts[-length:], before, strict=True)) / length
