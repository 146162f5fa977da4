"""Histograms in plain lists: what is counted on a path of calls costs one search and two sums."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Steps of 1, 2.5 and 5 from 50 µs, which a call across a socket takes, to a minute; those of the
# native side are the same, so that they can be laid over each other.
TIME_BOUNDS_S: tuple[float, ...] = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0),
)
# Calls of one batch: powers of two, which is what people choose.
SIZE_BOUNDS: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Tally:
    """Counts by fixed bounds. For one thread; others may read it.

    Attributes:
        bounds: Upper bounds, each of which belongs to its bucket.
        counts: By the first bound that is not below the value; the last of those above all.
        sum: Of the values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = TIME_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
