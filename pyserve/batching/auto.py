"""``batch_wait_timeout_s="auto"``: whether a batch that could leave waits for more items.

While every executor is busy, waiting is free, and ``batcher.py`` waits by itself. With a free
executor a batch waits only if more items are likely and worth it:

- *The next call is near, and worth it.* A newcomer saves the rest of the step that it would find
  running: of k executors, the first one is free after b / (k + 1) on average, where b is the fixed
  part of a step. The cost is the time that the waiting items lose; ``gaps.py`` compares the
  two. For Poisson arrivals and one executor the rule lets n items wait while ``n / rate < b / 2``,
  which is the optimum of the exact model (Deb and Serfozo, Optimal control of batch service
  queues, 1973) to within half a percent, as benchmarks/batching.py shows.
- *The callers just answered come back.* In a closed loop those whose answers have just left call
  again within moments; ``returns.py`` weighs that.

A rule that learns from what it does can keep away the evidence against itself. Here nothing that
is learnt depends on a wait: callers who come back are counted where nobody waits for them too, and
a gap that spans an answer does not count as one that a longer wait would have bridged. Calls that
look hopeless are let in as trials.

Deadlines cut every wait: a batch leaves while it can still finish in time.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from pyserve.batching.gaps import Gaps
from pyserve.batching.returns import Returns
from pyserve.batching.steps import StepTimes

if TYPE_CHECKING:
    from pyserve.batching.options import BatchOptions

# Reserved before a deadline for sending the answer. Arbitrary, some turns of a busy loop.
_MARGIN_S = 0.002
# Models remembered; beyond that the one that was used longest ago is forgotten.
_MODELS_MAX = 256
# Calls that look hopeless may take this share of an executor's time, so that a wrong estimate is
# noticed.
_TRIALS = 1 / 10


class Waiting(NamedTuple):
    """What waits for a batch.

    Attributes:
        items: How many.
        size: The sum of their sizes; their number without ``batch_size_fn``.
        since: When the wait began to cost something: the oldest item was there, and an executor
            was free.
        deadline: The earliest of the items'; ``inf`` without one.
    """

    items: int
    size: float
    since: float
    deadline: float


class AutoWait:
    """Keeps what has been learnt about each model, and derives the wait from it."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, Learnt] = OrderedDict()

    def of(self, key: str) -> Learnt:
        """Return what is known about a model; may forget the least recently used one."""
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
        "_answered",
        "_gaps",
        "_is_trying",
        "_last",
        "_returns",
        "_tried_at",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = StepTimes()
        self._last = -math.inf  # the newest arrival
        self._gaps = Gaps()
        self._returns = Returns()
        self._answered = -math.inf  # the newest arrival among those that were answered last
        # When a call that looked hopeless was let in, and whether no run has ended since.
        self._tried_at = -math.inf
        self._is_trying = False

    def on_arrival(self, now: float) -> None:
        """Record that a call came."""
        # Where the last one had been answered, the call may have come because of that: however
        # long the last one had waited, nobody would have joined it.
        self._gaps.note(math.inf if self._last <= self._answered else now - self._last)
        self._last = now
        self._returns.on_arrival(now)

    def on_answered(self, arrivals: list[float], waiting: int, now: float) -> None:
        """Record that callers got their answers.

        Args:
            arrivals: When their calls came, in order.
            waiting: How many others wait for a batch.
            now: The time.
        """
        if arrivals:
            self._answered = arrivals[-1]
        self._returns.on_answered(len(arrivals), waiting, now)

    def learn(self, size: float, duration_s: float) -> None:
        """Record the duration of a run."""
        self.steps.learn(size, duration_s)
        self._is_trying = False

    def leave_at(self, batch: Waiting, options: BatchOptions, free: int) -> tuple[float, bool]:
        """Return when a batch that waits leaves, and whether a deadline is the reason.

        Args:
            batch: What waits.
            options: The limits.
            free: Executors that are free.
        """
        since = batch.since
        # Batches that are all alike look as if nothing but the fixed part cost time, and waits that
        # follow from that may keep them alike: then one of another size leaves at once.
        if not self.steps.is_known or self.steps.teaches(batch.size) or self._is_trying:
            return since, False
        leave = max(since, self._until_worth_it(batch, options, free))
        deadline = batch.deadline
        # One that will be missed in any case makes nobody leave early.
        if deadline == math.inf or since + self.steps.least(batch.size) > deadline:
            return leave, False
        latest = deadline - self.steps.bound(batch.size + batch.size / batch.items) - _MARGIN_S
        return (latest, True) if latest < leave else (leave, False)

    def is_hopeless(self, size: float, deadline: float, now: float) -> bool:
        """Return whether a call would be late even if it ran alone, at once and at its fastest.

        Some are let in all the same, as trials: nothing else would tell that steps have become
        faster.
        """
        if not self.steps.is_known:
            return False
        alone_s = self.steps.least(size)
        if now + alone_s <= deadline:
            return False
        if now - self._tried_at < alone_s / _TRIALS:
            return True
        self._tried_at = now
        self._is_trying = True
        return False

    def _until_worth_it(self, batch: Waiting, options: BatchOptions, free: int) -> float:
        """Return until when company is likely, and saves more than it costs."""
        executors = options.max_concurrent_batches
        item = batch.size / batch.items
        fixed_s, per_call_s = self.steps.fixed_s, self.steps.per_item_s * item
        returns = -math.inf
        # What a newcomer saves: the first of the running steps ends after this time on average.
        gain_s = fixed_s / (executors + 1) / free
        if free > 1:
            # The newcomer could leave alone, and joining makes the step longer for the others. If
            # that cost is unknown, it leaves alone; sizes then vary, and the cost is learnt.
            gain_s = max(0.0, gain_s - self.steps.per_item_most_s * item * batch.items)
        else:
            count_max = options.max_batch_size / item if item else math.inf
            returns = self._returns.until(
                batch.items, fixed_s / executors, per_call_s / executors, count_max
            )
        # Beyond the gain the oldest would lose more than the newest can save.
        sparse = min(self._last + self._gaps.wait_s(batch.items, gain_s), batch.since + gain_s)
        return max(returns, sparse)
