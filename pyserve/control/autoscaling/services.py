"""How long replicas take for a call, and when that has changed. Pure.

A window that ends where the calls become others: evidence is kept for as long as its older and its
newer part agree, and the older part is dropped where they do not (A. Bifet and R. Gavaldà,
"Learning from time-changing data with adaptive windowing", 2007). So what was learnt of other calls
is gone as soon as there is evidence against it, however much of it there was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

BIN_S = 0.5
# Evidence of so many bins: of a minute, and of more where hardly any call began or ended.
_BINS_MAX = 120
# Parts differ where chance would make them do so once in 16 000 looks: with two looks a second and
# seven parts to compare that is once in twenty minutes, and then a minute has to be learnt again.
_DEVIATIONS = 4.0


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


class Services:
    """Times of calls, from counts alone.

    Args:
        now: When counting begins.
    """

    def __init__(self, now: float) -> None:
        self._begun = now  # Of the bin that is not over.
        self._bins: deque[_Bin] = deque(maxlen=_BINS_MAX)
        self._last = _Bin(now)
        self._ongoing = 0
        self._mean_s: float | None = None

    @property
    def mean_s(self) -> float | None:
        """How long a call takes; None: no call has ended yet."""
        return self._mean_s

    def add(self, *, busy_s: float, started: float, finished: float) -> None:
        """Calls have spent so much time, and so many of them have begun and ended, since then."""
        self._last.busy_s += busy_s
        self._last.started += started
        self._last.finished += finished

    def look(self, ongoing: int, now: float) -> float | None:
        """Learn from what was added.

        Args:
            ongoing: Calls that run now.
            now: Seconds.

        Returns:
            Since when calls are others than before; None: they are not.
        """
        self._ongoing = ongoing
        changed = None
        passed = int((now - self._begun) / BIN_S)
        if passed > 0:
            self._begun += passed * BIN_S
            changed = self._forget_others()
            # A call that goes on and on must not push all others out of the window.
            if self._last.started or self._last.finished:
                self._bins.append(self._last)
                self._last = _Bin(self._begun)
            elif not self._last.busy_s:
                self._last.begun = self._begun
        self._learn()
        return changed

    def _learn(self) -> None:
        total = _sum([*self._bins, self._last])
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
        newer = 1
        while newer < len(bins):
            since = bins[-newer].begun
            if _differ(bins[:-newer], bins[-newer:], self._ongoing, self._begun - since):
                self._bins = deque(bins[-newer:-1], maxlen=_BINS_MAX)
                return since
            newer *= 2
        return None


def _differ(older: Sequence[_Bin], newer: Sequence[_Bin], ongoing: int, newer_s: float) -> bool:
    """Return whether calls take longer or less long in the last ``newer_s``, for certain."""
    before, after = _sum(older), _sum(newer)
    calls = (before.started + before.finished) / 2
    if calls < 1 or before.busy_s <= 0:
        return False
    # How few calls that is of does not matter: the fewer there are, the less is lost.
    mean_s = before.busy_s / calls
    # Calls that ran before and have not ended are the long ones, so they prove nothing. The rest of
    # the time belongs to calls that have begun since, and those have not all ended yet.
    left_over = max(after.finished + ongoing - after.started, 0)
    busy_s = after.busy_s - left_over * newer_s
    if after.started and busy_s / after.started > mean_s * _beyond_chance(after.started):
        return True
    # With those alone that have begun and ended, the time is too long rather than too short.
    whole = min(after.started, after.finished)
    return whole >= 1 and after.busy_s / whole < mean_s / _beyond_chance(whole)


def _beyond_chance(calls: float) -> float:
    """Return by which factor the mean of so many calls is hardly ever off.

    Times are taken for exponential ones, whose mean of n has the relative deviation 1 / √n.
    """
    return math.exp(_DEVIATIONS / math.sqrt(calls))


def _sum(bins: Sequence[_Bin]) -> _Bin:
    return _Bin(
        bins[0].begun,
        sum(each.busy_s for each in bins),
        sum(each.started for each in bins),
        sum(each.finished for each in bins),
    )
