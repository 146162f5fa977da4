"""How long a batch of n items takes, learnt from the runs, and what the running step reports.

A straight line ``a n + b``, fitted by least squares to the newest runs, as Clipper (NSDI 2017)
and BentoML do. Where a line fits badly, a table by magnitude of the size takes over. Bounds for
the tails come from the newest relative residuals.

Runs from before a jump would bend the line until the last of them is too old. So a jump is
recognised as such: half of the newest few runs are far off, all to the same side. Then they alone
count.

A process reports what its batcher does now to the routers that send calls to it. Routers fill
batches that are about to leave instead of opening others. They need to know when the running step
ends, until when the next one waits for more items, and how long a step takes.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.batching.lanes import Batch
    from pyserve.batching.queue import BatchQueue


# The runs that count. Arbitrary: enough to see a slope through some noise.
_KEPT = 50
# The errors of the line and of the table forget as slowly.
_FORGETTING = 1 - 1 / _KEPT
# A size that never varies says nothing about the slope: this much variance is added, so that
# all of the time counts as fixed until sizes differ.
_RIDGE = 0.05
# A run may count as this many times what was expected: a hiccup must not ruin the fit.
_OUTLIER = 4.0
# Fewer runs are not trusted. The first run of all is left out: models warm up in it.
RUNS_MIN = 4
# A run is off by so much, or RUNS_MIN of these runs are off to the same side: that is a jump.
_JUMP = 2.0
_NEWEST = 2 * RUNS_MIN
# The table takes over where it explains the times this much better than the line.
_TABLE_ADVANTAGE = 0.5
_RESIDUALS_KEPT = 64
_QUANTILE = 0.95


class StepTimes:
    """Learns ``t(size)`` in seconds from ``learn`` and answers ``predict``."""

    __slots__ = (
        "_line_error",
        "_n",
        "_newest",
        "_nn",
        "_nt",
        "_residuals",
        "_rows",
        "_runs",
        "_seen",
        "_sorted",
        "_t",
        "_table",
        "_table_error",
    )

    def __init__(self) -> None:
        self._seen = 0
        self._runs: deque[tuple[float, float]] = deque()  # the newest sizes and times
        # Sums over them: of sizes, squares of sizes, times, sizes × times.
        self._n = self._nn = self._t = self._nt = 0.0
        self._table: dict[int, float] = {}  # magnitude of the size → mean time
        self._rows: Counter[int] = Counter()  # magnitude of the size → how many runs count
        self._line_error = self._table_error = 0.0  # squares with forgetting
        self._residuals: deque[float] = deque(maxlen=_RESIDUALS_KEPT)  # time / prediction
        self._sorted: list[float] | None = None
        # Of the newest runs, the size, the time and the residual.
        self._newest: deque[tuple[float, float, float]] = deque(maxlen=_NEWEST)

    @property
    def is_known(self) -> bool:
        """Whether enough runs were seen to rely on the prediction."""
        return self._seen > RUNS_MIN

    def teaches(self, size: float) -> bool:
        """Whether all runs had one size, so that one of ``size`` would show the slope."""
        return len(self._rows) == 1 and _magnitude(size) not in self._rows

    @property
    def per_item_s(self) -> float:
        """The learnt cost of one more item, at least 0."""
        slope = self._covariance() / (self._variance() + _RIDGE)
        # Neither part of the cost may be negative because of noise.
        return min(max(slope, 0.0), self._per_item_alone_s())

    @property
    def per_item_most_s(self) -> float:
        """The most that an item may cost: while sizes hardly vary, possibly all of the time."""
        return self.per_item_s if self._variance() > _RIDGE else self._per_item_alone_s()

    @property
    def fixed_s(self) -> float:
        """The learnt cost of a batch however small, at least 0."""
        # Runs from before a jump may bend the line; no size is quicker than the fixed part.
        least = min(self._table.values(), default=0.0)
        return min(least, self._fixed_beside(self.per_item_s))

    def learn(self, size: float, duration_s: float) -> None:
        """Take the duration of one run."""
        self._seen += 1
        if self._seen == 1:
            return
        expected = self.predict(size)
        if self.is_known and expected > 0:
            ratio = duration_s / expected
            self._residuals.append(ratio)
            self._sorted = None
            self._newest.append((size, duration_s, ratio))
            if not 1 / _JUMP < ratio < _JUMP and self._has_jumped(is_up=ratio > 1):
                self._begin_again()
                return
            duration_s = min(duration_s, _OUTLIER * expected)
        self._fit(size, duration_s)

    def predict(self, size: float) -> float:
        """Return the expected duration of a batch of ``size``, 0 while nothing is known."""
        if self._table_error < _TABLE_ADVANTAGE * self._line_error:
            known = self._table.get(_magnitude(size))
            if known is not None:
                return known
        return self._line(size)

    def bound(self, size: float) -> float:
        """Return what 95 % of such batches do not exceed, as far as seen."""
        return self.predict(size) * self._tail()

    def least(self, size: float) -> float:
        """Return what no such batch has stayed below, as far as seen."""
        return self.predict(size) * min(self._residuals, default=1.0)

    def _has_jumped(self, *, is_up: bool) -> bool:
        off = (ratio >= _JUMP if is_up else ratio <= 1 / _JUMP for _, _, ratio in self._newest)
        return sum(off) >= RUNS_MIN

    def _begin_again(self) -> None:
        """Forget what was before the newest runs that are off."""
        runs = list(self._newest)
        while 1 / _JUMP < runs[0][2] < _JUMP:
            del runs[0]
        self._runs.clear()
        self._n = self._nn = self._t = self._nt = 0.0
        self._line_error = self._table_error = 0.0
        self._table.clear()
        self._rows.clear()
        self._newest.clear()
        for size, duration_s, _ in runs:
            self._residuals.pop()
            self._fit(size, duration_s)

    def _fit(self, size: float, duration_s: float) -> None:
        self._compare(size, duration_s)
        self._sum(size, duration_s, 1)
        self._runs.append((size, duration_s))
        bucket = _magnitude(size)
        known = self._table.get(bucket, duration_s)
        self._table[bucket] = known + 0.1 * (duration_s - known)
        self._rows[bucket] += 1
        if len(self._runs) > _KEPT:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        size, duration_s = self._runs.popleft()
        self._sum(size, duration_s, -1)
        bucket = _magnitude(size)
        self._rows[bucket] -= 1
        if not self._rows[bucket]:
            # An old, long time of this size might prevent such batches, and so never be corrected.
            del self._rows[bucket], self._table[bucket]

    def _sum(self, size: float, duration_s: float, sign: int) -> None:
        self._n += sign * size
        self._nn += sign * size * size
        self._t += sign * duration_s
        self._nt += sign * size * duration_s

    def _variance(self) -> float:
        count = len(self._runs) or 1
        return max(0.0, self._nn / count - (self._n / count) ** 2)

    def _covariance(self) -> float:
        count = len(self._runs) or 1
        return self._nt / count - self._n / count * (self._t / count)

    def _per_item_alone_s(self) -> float:
        return self._t / self._n if self._n > 0 else 0.0

    def _line(self, size: float) -> float:
        slope = self.per_item_s
        return slope * size + self._fixed_beside(slope)

    def _fixed_beside(self, slope: float) -> float:
        return max(0.0, (self._t - slope * self._n) / len(self._runs)) if self._runs else 0.0

    def _compare(self, size: float, duration_s: float) -> None:
        known = self._table.get(_magnitude(size))
        if known is None or not self._runs:
            return
        keep = _FORGETTING
        self._line_error = self._line_error * keep + (duration_s - self._line(size)) ** 2
        self._table_error = self._table_error * keep + (duration_s - known) ** 2

    def _tail(self) -> float:
        if not self._residuals:
            return 1.0
        if self._sorted is None:
            self._sorted = sorted(self._residuals)
        return max(1.0, self._sorted[math.ceil(_QUANTILE * len(self._sorted)) - 1])


def _magnitude(size: float) -> int:
    # 0, 1, 2, 3–4, 5–8, 9–16 …: at most 64 rows for sizes that fit into a word.
    return math.ceil(math.log2(size)) + 1 if size > 1 else math.ceil(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A batcher at one moment; a step is one run of its function.

    Attributes:
        size_max: The most calls of one step.
        running: Calls in the steps that run.
        busy_s: Until an executor is expected to be free; ``None``: one is.
        window_s: How long the first that waits may wait for others; ``None``: nobody waits, or for
            an executor.
        step_fixed_s, step_per_call_s: What a step is expected to take, and more for each call; 0
            while nothing is known.
    """

    size_max: int
    running: int
    busy_s: float | None
    window_s: float | None
    step_fixed_s: float
    step_per_call_s: float


class Steps:
    """The steps of one queue: which ones run, and how long they take."""

    def __init__(self) -> None:
        self._times = StepTimes()
        self._running: dict[object, tuple[float, int]] = {}

    def begin(self, run: object, batch: Batch[object], now: float) -> None:
        """Note that ``run`` has begun with ``batch``."""
        self._running[run] = (now, len(batch.items))

    def is_running(self, run: object) -> bool:
        """Return whether ``run`` has begun and not ended."""
        return run in self._running

    def end(self, run: object, now: float) -> float:
        """Note that ``run`` has ended and return how long it took, in seconds."""
        return now - self._running.pop(run)[0]

    def learn(self, size: int, duration_s: float) -> None:
        """Take the time of one step that has not failed."""
        self._times.learn(size, duration_s)

    def state(
        self, now: float, *, size_max: int, executors: int, wakeup: float | None
    ) -> StepState:
        """Return the state at ``now``; ``wakeup`` is when the next step leaves by itself."""
        ends = [started + self._times.predict(size) for started, size in self._running.values()]
        is_busy = len(ends) >= executors
        return StepState(
            size_max=size_max,
            running=sum(size for _, size in self._running.values()),
            busy_s=max(0.0, min(ends) - now) if is_busy else None,
            window_s=None if wakeup is None or is_busy else max(0.0, wakeup - now),
            step_fixed_s=self._times.fixed_s,
            step_per_call_s=self._times.per_item_s,
        )


Listener = Callable[[StepState | None], object]


class Activity:
    """The batchers of a process, for scrapes; and a single batcher's state, for one listener.

    With two batchers, a router could not know whose batch a call would join, so no states are
    reported any more. Reports may come from the threads of several loops.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._queue: weakref.ref[object] | None = None
        # They end with the objects that they belong to, without a report.
        self._queues: weakref.WeakSet[BatchQueue] = weakref.WeakSet()
        self._has_several = False

    @property
    def is_heard(self) -> bool:
        """Whether a report reaches anybody."""
        return self._listener is not None and not self._has_several

    def note(self, queue: BatchQueue) -> None:
        """Remember a queue for as long as it lives."""
        with self._lock:
            self._queues.add(queue)

    def queues(self) -> list[BatchQueue]:
        """Return those that live."""
        with self._lock:
            return list(self._queues)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with each report, ``None`` at their end. It must not wait.

        It takes the place of another one, for which the reports end.
        """
        with self._lock:
            if self._listener is not None:
                self._listener(None)
            self._listener = listener

    def report(self, queue: object, state: StepState) -> None:
        """Report what ``queue`` does now."""
        with self._lock:
            known = None if self._queue is None else self._queue()
            if known is None:
                self._queue = weakref.ref(queue)
            elif known is not queue:
                self._has_several = True
            listener = self._listener
            if listener is not None:
                listener(None if self._has_several else state)


PROCESS_ACTIVITY = Activity()
"""The activity of all batchers in this process, global because decorators make them."""
