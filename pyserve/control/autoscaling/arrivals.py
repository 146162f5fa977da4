"""Arrivals of calls: rates, trend, burstiness, and seasons. Pure."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pyserve.config import AggregationFunction

# Bursts of the last minutes count.
KEPT_S = 180.0
_BIN_S = 0.5
# Windows of a rate, in bins: half a second to ten seconds.
_WINDOWS = (1, 2, 4, 10, 20)
# Two standard deviations: the true rate is at least the one used, with 97.5 % certainty.
_DEVIATIONS = 2.0
# Independent callers have 1 (Poisson). Smaller values cannot be relied on; values above the
# maximum are load rather than bursts.
_DISPERSION_MIN, _DISPERSION_MAX = 1.0, 20.0


class Arrivals:
    """Calls counted in bins of half a second.

    Args:
        now: When counting begins.
    """

    def __init__(self, now: float) -> None:
        self._bins: deque[float] = deque([0.0], maxlen=int(KEPT_S / _BIN_S))
        self._begun = now  # Of the last bin, which is not over.
        self._since = now  # Before that, other calls came.
        self._dispersion: float | None = None  # Of the bins that are over; None: not measured.

    def begin_again(self, at: float) -> None:
        """Measure rates from then on only, since other calls come. Burstiness is kept."""
        self._since = at

    def add(self, count: float, now: float) -> None:
        """Add the calls that have come since the last report."""
        self._pass(now)
        self._bins[-1] += count

    def rate(self, now: float, service_s: float = 0.0) -> float:
        """Return the calls per second that are certain to come now.

        The largest of the rates over windows of half a second to ten seconds, each reduced by two
        standard deviations of random variation, so that a jump counts at once and noise does not.
        Older calls do not count, unless a call takes longer than ten seconds: then those that came
        within the duration of one call are still running, and their mean rate counts.
        """
        self._pass(now)
        counts = self._of_now()
        spread = _DEVIATIONS * math.sqrt(self.dispersion(now))
        best = self.mean(now, max(_WINDOWS[-1] * _BIN_S, service_s))
        for window in _WINDOWS:
            if window <= len(counts):
                found = sum(counts[-window:])
                best = max(best, (found - spread * math.sqrt(found)) / (window * _BIN_S))
        return best

    def mean(self, now: float, over_s: float = 10.0) -> float:
        """Return the mean rate of the last seconds, per second."""
        self._pass(now)
        counts = self._of_now()[-max(int(over_s / _BIN_S), 1) :]
        return sum(counts) / (len(counts) * _BIN_S) if counts else 0.0

    def dispersion(self, now: float) -> float:
        """Return the variance of counts divided by their mean: 1 for independent callers.

        In the limit of long bins it is the squared coefficient of variation of the times between
        arrivals (Sriram and Whitt, "Characterizing superposition arrival processes in packet
        multiplexers", 1986). From the differences of neighbouring bins, so that a slow change of
        the load does not count as bursts.
        """
        self._pass(now)
        if self._dispersion is None:
            self._dispersion = self._measure_dispersion()
        return self._dispersion

    def _measure_dispersion(self) -> float:
        counts = self._whole()
        if len(counts) < 2 or not (total := sum(counts)):
            return _DISPERSION_MIN
        steps = sorted((after - before) ** 2 for before, after in itertools.pairwise(counts))
        # A jump of the load is not a burst, so the largest steps are left out.
        usual = steps[: len(steps) - 1 - len(steps) // 100] or steps
        variance = sum(usual) / (2 * len(usual))
        return min(max(variance / (total / len(counts)), _DISPERSION_MIN), _DISPERSION_MAX)

    def growth(self, now: float, over_s: float) -> float:
        """Return by how much the rate grows per second; 0 unless it grows throughout.

        The smallest of the slopes (least squares) of the last ``over_s`` and of its two halves, so
        that a jump does not count as a trend. Both halves' slopes must exceed random variation.
        """
        self._pass(now)
        counts = self._of_now()[-int(over_s / _BIN_S) :]
        if len(counts) < over_s / _BIN_S:
            return 0.0
        half = len(counts) // 2
        chance = self.dispersion(now)
        halves = [
            (_slope(each), _slope_error(each, chance)) for each in (counts[:half], counts[half:])
        ]
        if any(slope <= _DEVIATIONS * error for slope, error in halves):
            return 0.0
        return max(min(_slope(counts), *(slope for slope, _ in halves)), 0.0)

    def _whole(self) -> list[float]:
        """Return the completed bins."""
        return list(self._bins)[:-1]

    def _of_now(self) -> list[float]:
        """Return the completed bins since ``begin_again``."""
        count = math.ceil((self._begun - self._since) / _BIN_S - 1e-9)
        return self._whole()[-count:] if count > 0 else []

    def _pass(self, now: float) -> None:
        passed = int((now - self._begun) / _BIN_S)
        if passed > 0:
            self._bins.extend([0.0] * min(passed, self._bins.maxlen or 0))
            self._begun += passed * _BIN_S
            self._dispersion = None


def _slope(counts: Sequence[float]) -> float:
    """Return how fast the rate changes, in calls per second per second."""
    middle = (len(counts) - 1) / 2
    around = sum((index - middle) ** 2 for index in range(len(counts)))
    rise = sum((index - middle) * count for index, count in enumerate(counts))
    return rise / around / _BIN_S**2


def _slope_error(counts: Sequence[float], dispersion: float) -> float:
    """Return the standard deviation of that slope under random variation alone."""
    around = (len(counts) ** 3 - len(counts)) / 12
    return math.sqrt(dispersion * sum(counts) / len(counts) / around) / _BIN_S**2


# A number that changes from time to time, with its recent history.

# Parts of a window: a hundredth of it is as exact as a decision needs.
_PARTS = 100


@dataclass(slots=True)
class _Part:
    begun: float
    ended: float
    integral: float
    largest: float
    smallest: float


class Series:
    """A level that holds until the next one is set; what is older than the window is forgotten.

    Args:
        window_s: How far back the questions go, in seconds above 0.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._level: float | None = None
        self._parts: deque[_Part] = deque()

    @property
    def level(self) -> float:
        """The level set last; 0 before the first one."""
        return self._level or 0.0

    def set(self, level: float, now: float) -> None:
        """Let ``level`` hold from ``now`` on; time never goes back."""
        self._pass(now)
        begins = not self._parts or now - self._parts[-1].begun >= self._window_s / _PARTS
        if begins:
            self._parts.append(_Part(now, now, 0.0, level, level))
        part = self._parts[-1]
        part.largest, part.smallest = max(part.largest, level), min(part.smallest, level)
        self._level = level

    def aggregate(self, function: AggregationFunction | str, now: float) -> float:
        """Return the mean over time, the largest or the smallest level of the window.

        Before anything was set it is 0; time before the first level does not count.
        """
        self._pass(now)
        if not self._parts:
            return 0.0
        if function == AggregationFunction.MAX:
            return max(part.largest for part in self._parts)
        if function == AggregationFunction.MIN:
            return min(part.smallest for part in self._parts)
        return self._mean(now)

    def _mean(self, now: float) -> float:
        begun = now - self._window_s
        total = elapsed = 0.0
        for part in self._parts:
            length_s = part.ended - part.begun
            inside_s = part.ended - max(part.begun, begun)
            if inside_s > 0:
                total += part.integral * inside_s / length_s
                elapsed += inside_s
        return total / elapsed if elapsed > 0 else self.level

    def _pass(self, now: float) -> None:
        """Let the level hold until ``now``; forget what lies before the window."""
        if not self._parts:
            return
        last = self._parts[-1]
        if now - last.begun >= self._window_s / _PARTS and last.ended > last.begun:
            # One that holds for long must not carry the largest and smallest of its beginning.
            last = _Part(last.ended, last.ended, 0.0, self.level, self.level)
            self._parts.append(last)
        last.integral += self.level * (now - last.ended)
        last.ended = now
        while len(self._parts) > 1 and self._parts[0].ended <= now - self._window_s:
            self._parts.popleft()


# Seasonal load: finds its period, and forecasts the next period from the last.
#
# The seasonal naive forecast (the load of one period ago comes again) is used only if it has been
# clearly better, at the required distance, than assuming that the load stays as it is: forecasts
# are chosen by their past errors (R. J. Hyndman and A. B. Koehler, "Another look at measures of
# forecast accuracy", 2006).

_SEASON_BIN_S = 5.0
# Periods of a minute to half an hour, each of which must have been seen twice.
SEASON_KEPT_S = 3600.0
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
        self._bins: deque[float] = deque([0.0], maxlen=int(SEASON_KEPT_S / _SEASON_BIN_S) + 1)
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
        distance = math.ceil(over_s / _SEASON_BIN_S) + 1
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
        rate, work = self._bins[index] / _SEASON_BIN_S, self._work[index]
        if work.calls >= 1:
            service_s = work.busy_s / work.calls
        # Where calls outlast a bin, the running calls say more than the arrivals.
        return Forecast(rate, max(rate * service_s, work.busy_s / _SEASON_BIN_S))

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
        passed = int((now - self._begun) / _SEASON_BIN_S)
        if passed > 0:
            passed_bins = min(passed, self._bins.maxlen or 0)
            self._bins.extend([0.0] * passed_bins)
            self._work.extend(_Work() for _ in range(passed_bins))
            self._begun += passed * _SEASON_BIN_S


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
