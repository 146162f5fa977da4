"""The service times of calls, and when they have changed. Pure.

An adaptive window: evidence is kept for as long as its older and its newer part agree, and the
older part is dropped if they do not (A. Bifet and R. Gavaldà, "Learning from time-changing data
with adaptive windowing", 2007). So what was learnt from earlier calls is gone as soon as there is
evidence against it, however much of it there was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

BIN_S = 0.5
# Evidence of so many bins: of a minute, and of more where hardly any call began or ended.
_BINS_MAX = 120
# Parts differ where chance would make them do so once in 16 000 looks: with two looks a second and
# seven parts to compare that is once in twenty minutes, and then a minute has to be learnt again.
_DEVIATIONS = 4.0
# How often replicas sample the running calls to measure their time: a call that a sample meets
# counts for one interval, and a call that none meets for nothing.
_LOOK_S = 0.1


@dataclass(slots=True)
class _Bin:
    """Half a second, or more if no call has begun or ended in it.

    Attributes:
        begun: When it began.
        busy_s: The time that calls spent in replicas.
        started, finished: Calls that began and that ended.
    """

    begun: float
    busy_s: float = 0.0
    started: float = 0.0
    finished: float = 0.0

    def add(self, other: _Bin, sign: float = 1.0) -> None:
        self.busy_s += sign * other.busy_s
        self.started += sign * other.started
        self.finished += sign * other.finished


class Services:
    """Times of calls, from counts alone.

    Args:
        now: When counting begins.
    """

    def __init__(self, now: float) -> None:
        self._begun = now  # Of the bin that is not over.
        self._bins: deque[_Bin] = deque(maxlen=_BINS_MAX)
        self._last = _Bin(now)
        self._whole = _Bin(now)  # The sum of the bins that are over.
        self._ongoing = 0
        self._mean_s: float | None = None

    @property
    def mean_s(self) -> float | None:
        """How long a call takes; None: no call has ended yet."""
        return self._mean_s

    def add(self, *, busy_s: float, started: float, finished: float) -> None:
        """Add the time that calls have spent, and the numbers that began and ended since then."""
        self._last.busy_s += busy_s
        self._last.started += started
        self._last.finished += finished

    def look(self, ongoing: int, now: float) -> float | None:
        """Learn from what was added.

        Args:
            ongoing: Calls that run now.
            now: Seconds.

        Returns:
            Since when calls differ from those before; None: they do not.
        """
        self._ongoing = ongoing
        changed = None
        passed = int((now - self._begun) / BIN_S)
        if passed > 0:
            self._begun += passed * BIN_S
            changed = self._forget_others()
            # A very long call must not push all others out of the window.
            if self._last.started or self._last.finished:
                self._bins.append(self._last)
                self._whole = _sum(self._bins)
                self._last = _Bin(self._begun)
            elif not self._last.busy_s:
                self._last.begun = self._begun
        self._learn()
        return changed

    def _learn(self) -> None:
        total = _Bin(self._begun)
        total.add(self._whole)
        total.add(self._last)
        if self._mean_s is None and total.finished < 1:
            return
        # By Little's law (J. D. C. Little, 1961). Of a call that has begun or ended in the window,
        # but not both, half of the time is in it in the mean, so it counts for half a call.
        calls = (total.finished + max(total.started, self._ongoing)) / 2
        if calls >= 0.5 and total.busy_s > 0:
            self._mean_s = total.busy_s / calls

    def _forget_others(self) -> float | None:
        """Drop the bins whose calls differ from the newest ones; return since when they differ."""
        bins = [*self._bins, self._last]
        older, newer = _sum(bins), _Bin(self._begun)
        for count, each in enumerate(reversed(bins[1:]), 1):
            older.add(each, -1.0)
            newer.add(each)
            # Windows of one, two, four and so on.
            is_window = count & (count - 1) == 0
            if is_window and _differ(older, newer, self._ongoing, self._begun - each.begun):
                self._bins = deque(bins[-count:-1], maxlen=_BINS_MAX)
                self._whole = _sum(self._bins)
                return each.begun
        return None


def _differ(before: _Bin, after: _Bin, ongoing: int, newer_s: float) -> bool:
    """Return whether calls take longer or less long in the last ``newer_s`` for certain."""
    calls = (before.started + before.finished) / 2
    if calls < 1 or before.busy_s <= 0:
        return False
    # How few calls these are does not matter: the fewer there are, the less is lost.
    mean_s, unmet = before.busy_s / calls, _LOOK_S / before.busy_s
    # Calls that ran before and have not ended are the long ones, so they prove nothing. The rest of
    # the time belongs to calls that have begun since, and those have not all ended yet.
    left_over = max(after.finished + ongoing - after.started, 0)
    busy_s = after.busy_s - left_over * newer_s
    if after.started and busy_s > 0:
        variance = 1 / after.started + _LOOK_S / busy_s + unmet
        if _is_beyond_chance(busy_s / after.started / mean_s, variance):
            return True
    # With those alone that have begun and ended, the time is too long rather than too short.
    whole = min(after.started, after.finished)
    if whole < 1:
        return False
    # Where no look has met a call, the next one may.
    ratio = mean_s * whole / (after.busy_s + _LOOK_S)
    return _is_beyond_chance(ratio, (1 + _LOOK_S / mean_s) / whole + unmet)


def _is_beyond_chance(ratio: float, variance: float) -> bool:
    """Return whether two means of that relative variance hardly ever differ by that factor.

    Times are taken for exponential ones: the mean of n has the relative variance 1 / n. Of calls
    that are met by chance at n looks, it is 1 / n more.
    """
    return math.log(ratio) > _DEVIATIONS * math.sqrt(variance)


def _sum(bins: Iterable[_Bin]) -> _Bin:
    total = _Bin(0.0)
    for each in bins:
        total.add(each)
    return total
