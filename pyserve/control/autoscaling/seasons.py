"""Loads that come again: which period they have, and what the last one says of the next. Pure.

The seasonal naive forecast (what was a period ago comes again) is used only where it has been
clearly better than going on as now, at the distance that is asked for: forecasts are chosen by what
they would have been wrong by (R. J. Hyndman and A. B. Koehler, "Another look at measures of
forecast accuracy", 2006).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

_BIN_S = 5.0
# Periods of a minute to half an hour, each of which has to have been there twice.
KEPT_S = 3600.0
_PERIOD_MIN = 12
# The forecast's error, as a share of that of going on as now; and of the load.
_BETTER, _EXACT = 0.5, 0.2
_CLEARLY = 0.9
# What is to be foreseen has to be more than chance, so many times.
_SWINGS = 2.0
# All periods are tried so often; the one that was found is tried at each bin.
_SEARCH_EVERY_S = 30.0


class Seasons:
    """Counts of calls in bins of five seconds.

    Args:
        now: When counting begins.
    """

    def __init__(self, now: float) -> None:
        self._bins: deque[float] = deque([0.0], maxlen=int(KEPT_S / _BIN_S) + 1)
        self._begun = now  # Of the last bin, which is not over.
        self._period = 0
        self._searched_at = self._tried_at = -math.inf

    def add(self, count: float, now: float) -> None:
        """So many calls have come since the last word."""
        self._pass(now)
        self._bins[-1] += count

    def ahead(self, now: float, over_s: float) -> float | None:
        """Return the highest rate from now on for so long; None where it is not known."""
        self._pass(now)
        distance = math.ceil(over_s / _BIN_S) + 1
        self._look(distance, now)
        if not self._period:
            return None
        # What was a period before the bin that is not over, and after that.
        past = list(self._bins)[-1 - self._period : -1]
        return max(past[index % len(past)] for index in range(distance)) / _BIN_S

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
            self._bins.extend([0.0] * min(passed, self._bins.maxlen or 0))
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
    """Return the error of a forecast by that period for the last of them; inf: it is no help."""
    mean = sum(counts[-period:]) / period
    # As now: so many bins before, but not about a period.
    as_now = _error(counts, min(distance, period // 2), period)
    if as_now <= _SWINGS * _by_chance(mean):
        return math.inf
    error = _error(counts, period, period)
    return error if error < min(_BETTER * as_now, _EXACT * mean) else math.inf


def _by_chance(mean: float) -> float:
    """Return by how much two counts of independent callers differ in the mean."""
    return math.sqrt(4 * mean / math.pi)


def _error(counts: Sequence[float], distance: int, length: int) -> float:
    """Return by how much the last counts differ from those before them, in the mean."""
    end = len(counts)
    before = counts[end - length - distance : end - distance]
    return sum(abs(a - b) for a, b in zip(counts[-length:], before, strict=True)) / length
