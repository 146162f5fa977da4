"""Histograms of times: differences of two snapshots, sums, and quantiles. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of how long something took.

    Attributes:
        bounds: Upper ones of the buckets, in seconds, ascending.
        counts: Of each bucket by itself, the last one for times above all bounds.
        sum_s: The sum of all times.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sum_s: float = 0.0

    @classmethod
    def of(cls, bounds: Sequence[float], counts: Sequence[int], sum_s: float) -> Histogram:
        """Return one from plain values.

        Raises:
            ValueError: The number of counts is not that of the bounds plus one.
        """
        if len(counts) != len(bounds) + 1:
            raise ValueError(f"{len(bounds)} bounds need {len(bounds) + 1} counts")
        return cls(tuple(bounds), tuple(counts), sum_s)

    @property
    def count(self) -> int:
        """The number of times."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float | None:
        """Their mean; ``None`` if there are none."""
        count = self.count
        return self.sum_s / count if count else None

    def since(self, earlier: Histogram) -> Histogram:
        """Return the counts since an earlier histogram; all of them if counting was restarted."""
        if earlier.bounds != self.bounds or earlier.count > self.count:
            return self
        counts = [now - then for now, then in zip(self.counts, earlier.counts, strict=True)]
        if any(count < 0 for count in counts):
            return self
        return Histogram(self.bounds, tuple(counts), max(0.0, self.sum_s - earlier.sum_s))

    def plus(self, other: Histogram) -> Histogram:
        """Return the sum of both.

        Raises:
            ValueError: Their bounds differ.
        """
        if not self.counts or not other.counts:
            return other if not self.counts else self
        if other.bounds != self.bounds:
            raise ValueError("histograms of other bounds cannot be added")
        counts = map(sum, zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, tuple(counts), self.sum_s + other.sum_s)

    def quantile(self, share: float) -> float | None:
        """Return the quantile for a share of all times; ``None`` if there are none.

        Interpolated linearly within its bucket, like Prometheus's ``histogram_quantile``; above the
        last bound it is that bound.
        """
        count = self.count
        if not count:
            return None
        rank = share * count
        below = 0
        for index, upto in enumerate(accumulate(self.counts)):
            if upto >= rank and self.counts[index]:
                if index == len(self.bounds):
                    break
                lower = self.bounds[index - 1] if index else 0.0
                part = (rank - below) / self.counts[index]
                return lower + (self.bounds[index] - lower) * max(0.0, part)
            below = upto
        return self.bounds[-1] if self.bounds else None


def total(parts: Iterable[Histogram]) -> Histogram:
    """Return the sum of all."""
    found = Histogram()
    for part in parts:
        found = found.plus(part)
    return found
