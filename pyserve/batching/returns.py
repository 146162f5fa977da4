"""Callers who call again after their answer, and how long it pays to wait for them: pure.

After each batch the arrivals are noted, up to the number of answered callers, whether or not the
next batch has waited for them. So what is learnt does not depend on earlier decisions.

Let m callers be answered while q wait, and F(w) be the share of m that is back after w. In a
closed loop that always leaves after w, a batch has n = (q + m) / (2 - F(w)) callers: those who
come too late are the q of the next one. It serves n / (w + b + a n) calls a second, and the best
w is searched among the newest returns. For Poisson arrivals, where F grows in proportion to the
time, the best is not to wait. There is no wait either if the gain may be due to chance.
"""

from __future__ import annotations

from collections import deque
from itertools import chain

# Batches whose returns count, and the returns sampled from each, evenly spread. Arbitrary; together
# they bound the cost of a decision.
_KEPT = 16
_SAMPLED = 16


# The least gain of a wait over no wait: shares that were seen 16 times are off by up to an eighth
# (one standard error), which has this effect on the calls per second.
_PROMISE = 1.1

# A time after an answer, the share of the callers who came since the one before, and whether all
# are back.
_Offset = tuple[float, float, bool]


class Returns:
    """The newest returns of one model's callers; times in seconds of one clock."""

    __slots__ = ("_answered", "_answered_at", "_best", "_came", "_kept", "_offsets", "_waited")

    def __init__(self) -> None:
        # Of each batch, the times after its answer, each with the share of its callers.
        self._kept: deque[list[_Offset]] = deque(maxlen=_KEPT)
        self._answered_at = 0.0
        self._answered = self._came = self._waited = 0
        self._offsets: list[_Offset] = []
        self._best: tuple[float, float] | None = None  # the wait, and how many are then there

    def on_answered(self, count: int, waiting: int, now: float) -> None:
        """Record that ``count`` callers got their answers, while ``waiting`` others wait."""
        if self._answered:
            self._kept.append(self._offsets)
        self._answered, self._waited, self._came = count, waiting, 0
        self._answered_at = now
        self._offsets = []
        self._best = None

    def on_arrival(self, now: float) -> None:
        """Record that a call came."""
        answered = self._answered
        if self._came < answered:
            came = self._came = self._came + 1
            stride = -(-answered // _SAMPLED)
            share = came % stride or stride
            if share == stride or came == answered:
                self._offsets.append((now - self._answered_at, share / answered, came == answered))

    def until(self, count: int, fixed_s: float, per_call_s: float, count_max: float) -> float:
        """Return when a batch leaves that waits for them; in the past if it need not.

        Args:
            count: Items that wait.
            fixed_s: How long, however small the batch is, until the next one can leave.
            per_call_s: The time that each call adds to that.
            count_max: The most calls of a batch.
        """
        callers = self._waited + self._answered
        if count >= callers or len(self._kept) < _KEPT:
            return self._answered_at
        if self._best is None:
            self._best = self._choose(callers, fixed_s, per_call_s, count_max)
        wait_s, there = self._best
        return self._answered_at if count >= there else self._answered_at + wait_s

    def _choose(
        self, callers: int, fixed_s: float, per_call_s: float, count_max: float
    ) -> tuple[float, float]:
        best, best_rate = (0.0, 0.0), 0.0
        back = complete_s = 0.0  # The share that is back, and the waits that ended with all.
        waiting = _KEPT
        offsets = sorted(chain.from_iterable(self._kept))
        for offset, share, is_all in chain(((0.0, 0.0, False),), offsets):
            back += share / _KEPT
            if is_all:
                complete_s += offset
                waiting -= 1
            batch = min(count_max, callers / (2 - min(back, 1.0)))
            seconds = (complete_s + waiting * offset) / _KEPT + fixed_s + per_call_s * batch
            if seconds <= 0:  # If a step takes no time, any wait is too long.
                break
            rate = batch / seconds
            if not offset:
                best_rate = _PROMISE * rate
            elif rate > best_rate:
                best, best_rate = (offset, self._waited + back * self._answered), rate
        return best
