"""Times as counts by bounds: differences of two looks, sums, and quantiles. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often something took how long.

    Attributes:
        bounds: Upper ones of the buckets, in seconds, ascending.
        counts: Of each bucket by itself, and last of those above all bounds.
        sum_s: All of the times together.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sum_s: float = 0.0

    @classmethod
    def of(cls, bounds: Sequence[float], counts: Sequence[int], sum_s: float) -> Histogram:
        """Return one of plain values.

        Raises:
            ValueError: There is not one count more than there are bounds.
        """
        if len(counts) != len(bounds) + 1:
            raise ValueError(f"{len(bounds)} bounds need {len(bounds) + 1} counts")
        return cls(tuple(bounds), tuple(counts), sum_s)

    @property
    def count(self) -> int:
        """How many times there are."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float | None:
        """Their mean; ``None`` of none."""
        count = self.count
        return self.sum_s / count if count else None

    def since(self, earlier: Histogram) -> Histogram:
        """Return what has come since an earlier look; all of it if counting began anew."""
        if earlier.bounds != self.bounds or earlier.count > self.count:
            return self
        counts = [now - then for now, then in zip(self.counts, earlier.counts, strict=True)]
        if any(count < 0 for count in counts):
            return self
        return Histogram(self.bounds, tuple(counts), max(0.0, self.sum_s - earlier.sum_s))

    def plus(self, other: Histogram) -> Histogram:
        """Return both together.

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
        """Return the time that a share of all does not exceed; ``None`` of none.

        It lies on a line through its bucket, as Prometheus's ``histogram_quantile`` has it; above
        the last bound nothing is known but the bound.
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
    """Return all of them together."""
    found = Histogram()
    for part in parts:
        found = found.plus(part)
    return found
