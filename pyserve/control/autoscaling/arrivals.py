"""Arrivals of calls: rates, their trend, and their burstiness. Pure."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence

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
