"""How long a batch of n items takes, learnt from the runs: pure, without clock.

A straight line ``a n + b``, fitted by least squares with exponential forgetting (the closed
form of recursive least squares for one regressor), as Clipper (NSDI 2017) and BentoML do. Where
a line fits badly, a table by magnitude of the size takes over. A bound for the tail comes from
the newest relative residuals.
"""

from __future__ import annotations

import math
from collections import deque

# One run in 50 forgets a factor e. Arbitrary: a change of the model shows within seconds.
_FORGETTING = 0.98
# A size that never varies says nothing about the slope: this much variance is added, so that
# all of the time counts as fixed until sizes differ.
_RIDGE = 0.05
# A run may count as this many times what was expected: a hiccup must not ruin the fit, and a
# model that has become slower is still followed within a few runs.
_OUTLIER = 4.0
# Fewer runs are not trusted. The first run of all is left out: models warm up in it.
RUNS_MIN = 4
# The table takes over where it explains the times this much better than the line.
_TABLE_ADVANTAGE = 0.5
_RESIDUALS_KEPT = 64
_QUANTILE = 0.95


class StepTimes:
    """Learns ``t(size)`` in seconds from ``learn`` and answers ``predict``."""

    __slots__ = (
        "_line_error",
        "_n",
        "_nn",
        "_nt",
        "_residuals",
        "_seen",
        "_sorted",
        "_t",
        "_table",
        "_table_error",
        "_w",
    )

    def __init__(self) -> None:
        self._seen = 0
        # Sums with forgetting: of weights, sizes, squares of sizes, times, sizes × times.
        self._w = self._n = self._nn = self._t = self._nt = 0.0
        self._table: dict[int, float] = {}  # magnitude of the size → mean time
        self._line_error = self._table_error = 0.0  # squares with forgetting
        self._residuals: deque[float] = deque(maxlen=_RESIDUALS_KEPT)  # time / prediction
        self._sorted: list[float] | None = None

    @property
    def is_known(self) -> bool:
        """Whether enough runs were seen to rely on the prediction."""
        return self._seen > RUNS_MIN

    @property
    def per_item_s(self) -> float:
        """The learnt cost of one more item, at least 0."""
        if not self._w:
            return 0.0
        mean_n, mean_t = self._n / self._w, self._t / self._w
        variance = self._nn / self._w - mean_n * mean_n
        slope = (self._nt / self._w - mean_n * mean_t) / (max(variance, 0.0) + _RIDGE)
        # Neither part of the cost is negative, whatever the noise says.
        return min(max(slope, 0.0), mean_t / mean_n if mean_n else 0.0)

    @property
    def fixed_s(self) -> float:
        """The learnt cost of a batch however small, at least 0."""
        if not self._w:
            return 0.0
        return max(0.0, (self._t - self.per_item_s * self._n) / self._w)

    def learn(self, size: float, duration_s: float) -> None:
        """Take the duration of one run."""
        self._seen += 1
        if self._seen == 1:
            return
        if self.is_known:
            expected = self.predict(size)
            if expected > 0:
                self._residuals.append(duration_s / expected)
                self._sorted = None
                duration_s = min(duration_s, _OUTLIER * expected)
        self._compare(size, duration_s)
        keep = _FORGETTING
        self._w = self._w * keep + 1.0
        self._n = self._n * keep + size
        self._nn = self._nn * keep + size * size
        self._t = self._t * keep + duration_s
        self._nt = self._nt * keep + size * duration_s
        bucket = _magnitude(size)
        known = self._table.get(bucket, duration_s)
        self._table[bucket] = known + 0.1 * (duration_s - known)

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

    def _line(self, size: float) -> float:
        slope = self.per_item_s
        return slope * size + max(0.0, (self._t - slope * self._n) / self._w) if self._w else 0.0

    def _compare(self, size: float, duration_s: float) -> None:
        known = self._table.get(_magnitude(size))
        if known is None or not self._w:
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
