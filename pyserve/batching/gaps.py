"""The gaps between arrivals, and how long it pays to wait for the next one: pure.

``count`` items wait for at most ``w`` after the newest arrival. With the gaps' distribution F,
that costs them ``count × E[min(gap, w)]`` and brings a newcomer with the probability ``F(w)``;
each newcomer saves ``gain``. The best ``w`` is looked for among the newest gaps themselves, so
bursts are seen as well as steady traffic. For Poisson arrivals the rule becomes ``wait while
count / rate < gain``.
"""

from __future__ import annotations

import math
from collections import deque

# Gaps that count, and arrivals after which they are looked at again; arbitrary.
_KEPT = 32
_REFRESH = 8
# A wait that brings somebody less often follows chance, not the traffic.
_CHANCE_MIN = 0.25


class Gaps:
    """The newest gaps of one stream of arrivals, in seconds."""

    __slots__ = ("_gaps", "_new", "_sorted", "_waits")

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_KEPT)
        self._sorted: list[float] = []
        self._waits: dict[tuple[int, float], float] = {}
        self._new = _REFRESH

    def note(self, gap_s: float) -> None:
        """Take the time between two arrivals; infinite where no wait would have bridged it."""
        self._gaps.append(gap_s)
        self._new += 1

    def wait_s(self, count: int, gain_s: float) -> float:
        """Return how long after an arrival the next one is worth waiting for, 0 if it is not.

        Args:
            count: Items that wait.
            gain_s: The time that a newcomer saves. A change takes effect after some arrivals.
        """
        if self._new >= _REFRESH:
            self._new = 0
            self._sorted = sorted(self._gaps)
            self._waits = {}
        wait_s = self._waits.get((count, gain_s))
        if wait_s is None:
            wait_s = self._waits[count, gain_s] = _best_wait_s(self._sorted, count, gain_s)
        return wait_s


def _best_wait_s(gaps: list[float], count: int, gain_s: float) -> float:
    total = len(gaps)
    first = int(_CHANCE_MIN * total)
    # No wait is worth more than a certain gain. For most traffic the decision falls here.
    if total < _REFRESH or gain_s <= count * (1 - _CHANCE_MIN) * gaps[first]:
        return 0.0
    spent = sum(gaps[:first])
    best, best_value = 0.0, 0.0
    for index in range(first, total):
        if gaps[index] == math.inf:
            break
        spent += gaps[index]
        reached = index + 1
        value = reached * gain_s - count * (spent + (total - reached) * gaps[index])
        if value > best_value:
            best, best_value = gaps[index], value
    return best
