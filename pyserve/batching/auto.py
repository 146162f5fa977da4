"""``batch_wait_timeout_s="auto"``: whether a batch that could leave waits for company.

While every executor is busy, waiting is free, and ``batcher.py`` waits by itself. With a free
executor a batch waits only if company is likely and worth it:

- *The next call is near, and worth it.* A newcomer saves the rest of a step that it would find
  running: on average half of the fixed part b. Against that stands the time that those who are
  here lose; ``gaps.py`` weighs them. For Poisson arrivals the rule lets n items wait while
  ``n / rate < b / 2``, which is the optimum of the exact model (Deb and Serfozo, Optimal control
  of batch service queues, 1973) to within half a percent, as benchmarks/batching.py shows.
- *The callers just answered come back.* In a closed loop those whose answers have just left call
  again within moments. Where that was so for most of them lately, the batch waits for them, for
  at most a third of b.

Deadlines cut every wait: a batch leaves while it can still finish in time.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from pyserve.batching.gaps import Gaps
from pyserve.batching.steps import StepTimes

# What a newcomer saves, as part of the fixed cost.
_GAIN = 1 / 2
# Part of the fixed cost that may be spent on callers who come back, the share of them that has
# to have come back lately, and how fast that is learnt. Found by trying closed loops of 2 to 32
# callers against the best fixed window for each; of Poisson arrivals about a third of a batch
# comes in that part of a step, far below the share.
_RETURN_WINDOW = 1 / 3
_RETURN_SHARE_MIN = 0.7
_RETURN_LEARNING = 0.1
# Kept off a deadline for the way of the answer; arbitrary, some turns of a busy loop.
_MARGIN_S = 0.002
# What was learnt about a model that nobody asks for any more is forgotten, oldest first.
_MODELS_MAX = 256
# Sheds end when nothing was learnt for this long, so that a wrong estimate is found out.
_TRUST_S = 1.0


class AutoWait:
    """What has been learnt about each model, and the wait that follows from it."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, Learnt] = OrderedDict()

    def of(self, key: str) -> Learnt:
        """Return what is known about a model; forgets the one that was asked for longest ago."""
        learnt = self._models.get(key)
        if learnt is None:
            learnt = self._models[key] = Learnt()
            if len(self._models) > _MODELS_MAX:
                self._models.popitem(last=False)
        elif len(self._models) > 1:
            self._models.move_to_end(key)
        return learnt


class Learnt:
    """Arrivals, steps and returning callers of one model; times in seconds of one clock."""

    __slots__ = (
        "_expected",
        "_gaps",
        "_last",
        "_learnt_at",
        "_return_share",
        "_returned",
        "_returns_end",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = StepTimes()
        self._last = -math.inf  # the newest arrival
        self._gaps = Gaps()
        self._learnt_at = -math.inf
        # After the end of a run, until `_returns_end`: how many may come back, how many have.
        self._returns_end = -math.inf
        self._expected = 0
        self._returned = 0
        self._return_share = 0.0

    def on_arrival(self, now: float) -> None:
        """Record that a call came."""
        self._gaps.note(now - self._last)
        self._last = now
        if now <= self._returns_end:
            self._returned += 1

    def on_answered(self, count: int, now: float) -> None:
        """Record that ``count`` callers got their answers."""
        self._count_returns()
        self._expected = count
        self._returned = 0
        self._returns_end = now + _RETURN_WINDOW * self.steps.fixed_s

    def learn(self, size: float, duration_s: float, now: float) -> None:
        """Record the duration of a run."""
        self.steps.learn(size, duration_s)
        self._learnt_at = now

    def leave_at(
        self, count: int, size: float, since: float, deadline: float
    ) -> tuple[float, bool]:
        """Return when a batch that waits leaves, and whether a deadline is the reason.

        Args:
            count: Items that wait.
            size: The sum of their sizes; their number without ``batch_size_fn``.
            since: When the wait began to cost something: the oldest item was there, and an
                executor was free.
            deadline: The earliest of the items'; ``inf`` without one.
        """
        if not self.steps.is_known:
            return since, False
        leave = max(self._until_returned(), self._until_sparse(count, since))
        leave = max(leave, since)
        if deadline == math.inf:
            return leave, False
        latest = deadline - self.steps.bound(size + size / count) - _MARGIN_S
        return (latest, True) if latest < leave else (leave, False)

    def is_hopeless(self, size: float, deadline: float, now: float) -> bool:
        """Return whether a call would be late even if it ran alone and at once."""
        alone_s = self.steps.predict(size)
        is_fresh = now - self._learnt_at <= _TRUST_S + 10 * alone_s
        return self.steps.is_known and is_fresh and now + alone_s > deadline

    def _until_sparse(self, count: int, since: float) -> float:
        gain_s = _GAIN * self.steps.fixed_s
        # Beyond that the oldest would lose more than the newest can gain.
        return min(self._last + self._gaps.wait_s(count, gain_s), since + gain_s)

    def _until_returned(self) -> float:
        if self._return_share < _RETURN_SHARE_MIN:
            return -math.inf
        if self._returned >= self._expected * self._return_share:
            return -math.inf
        return self._returns_end

    def _count_returns(self) -> None:
        if self._expected:
            share = min(1.0, self._returned / self._expected)
            self._return_share += _RETURN_LEARNING * (share - self._return_share)
