"""``batch_wait_timeout_s="auto"``: whether a batch that could leave waits for more items.

While every executor is busy, waiting is free, and ``batcher.py`` waits by itself. With a free
executor a batch waits only if more items are likely and worth it:

- *The next call is near, and worth it.* A newcomer saves the rest of the step that it would find
  running: of k executors, the first one is free after b / (k + 1) on average, where b is the fixed
  part of a step. The cost is the time that the waiting items lose; ``Gaps`` compares the
  two. For Poisson arrivals and one executor the rule lets n items wait while ``n / rate < b / 2``,
  which is the optimum of the exact model (Deb and Serfozo, Optimal control of batch service
  queues, 1973) to within half a percent, as benchmarks/batching.py shows.
- *The callers just answered come back.* In a closed loop those whose answers have just left call
  again within moments; ``Returns`` weighs that.

A rule that learns from what it does can keep away the evidence against itself. Here nothing that
is learnt depends on a wait: callers who come back are counted where nobody waits for them too, and
a gap that spans an answer does not count as one that a longer wait would have bridged. Calls that
look hopeless are let in as trials.

Deadlines cut every wait: a batch leaves while it can still finish in time.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

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


# The gaps between arrivals, and how long it pays to wait for the next one.
#
# `count` items wait for at most `w` after the newest arrival. With the gaps' distribution F, that
# costs them `count × E[min(gap, w)]` and brings a newcomer with the probability `F(w)`; each
# newcomer saves `gain`. The best `w` is looked for among the newest gaps themselves, so bursts are
# seen as well as steady traffic. For Poisson arrivals the rule becomes `wait while count / rate <
# gain`.

# Gaps that count, and arrivals after which they are looked at again; arbitrary.
_GAPS_KEPT = 32
_REFRESH = 8
# A wait that brings somebody less often follows chance, not the traffic.
_CHANCE_MIN = 0.25


class Gaps:
    """The newest gaps of one stream of arrivals, in seconds."""

    __slots__ = ("_gaps", "_new", "_sorted", "_waits")

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=_GAPS_KEPT)
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


# Callers who call again after their answer, and how long it pays to wait for them.
#
# After each batch the arrivals are noted, up to the number of answered callers, whether or not the
# next batch has waited for them. So what is learnt does not depend on earlier decisions.
#
# Let m callers be answered while q wait, and F(w) be the share of m that is back after w. In a
# closed loop that always leaves after w, a batch has n = (q + m) / (2 - F(w)) callers: those who
# come too late are the q of the next one. It serves n / (w + b + a n) calls a second, and the best
# w is searched among the newest returns. For Poisson arrivals, where F grows in proportion to the
# time, the best is not to wait. A gain that may be due to chance is not waited for either.

# Batches whose returns count, and the returns sampled from each, evenly spread. Arbitrary; together
# they bound the cost of a decision.
_RETURNS_KEPT = 16
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
        self._kept: deque[list[_Offset]] = deque(maxlen=_RETURNS_KEPT)
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
        if count >= callers or len(self._kept) < _RETURNS_KEPT:
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
        waiting = _RETURNS_KEPT
        offsets = sorted(chain.from_iterable(self._kept))
        for offset, share, is_all in chain(((0.0, 0.0, False),), offsets):
            back += share / _RETURNS_KEPT
            if is_all:
                complete_s += offset
                waiting -= 1
            batch = min(count_max, callers / (2 - min(back, 1.0)))
            seconds = (complete_s + waiting * offset) / _RETURNS_KEPT + fixed_s + per_call_s * batch
            if seconds <= 0:  # If a step takes no time, any wait is too long.
                break
            rate = batch / seconds
            if not offset:
                best_rate = _PROMISE * rate
            elif rate > best_rate:
                best, best_rate = (offset, self._waited + back * self._answered), rate
        return best
