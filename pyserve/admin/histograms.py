"""Histograms of times, and how numbers are shown. Pure.

Differences of two snapshots, sums and quantiles; rounding to meaningful digits; and fewer buckets
for Prometheus, which make up most of a large node's metrics. All processes count with the same
bounds. The text for Prometheus may leave some of them out without losing calls; it cannot have
other bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pyserve.config.telemetry import MetricsSettings
from pyserve.observe.metrics import Exemplar, Family, Sample
from pyserve.observe.metrics.families import TIME_BOUNDS_S


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


# A microsecond: clocks and histograms are not more precise.
_SECONDS_DIGITS = 6


def seconds(value: float | None) -> float | None:
    """Round a time; ``None`` stays: nothing happened that could have taken it."""
    return None if value is None else round(value, _SECONDS_DIGITS)


def rate(count: int, passed_s: float) -> float:
    """Return how often something happened per second."""
    return round(count / passed_s, 1)


def share(part: int, whole: int) -> float | None:
    """Return a part as a share of the whole; ``None`` if the whole is nothing."""
    return round(part / whole, 5) if whole else None


_OF_REQUESTS = (
    "pyserve_router_call_seconds",
    "pyserve_router_parked_seconds",
    "pyserve_router_attempt_seconds",
    "pyserve_router_prediction_error_seconds",
    "pyserve_replica_call_seconds",
    "pyserve_replica_route_seconds",
)
_OF_MODELS = ("pyserve_model_load_seconds", "pyserve_model_unload_seconds")

Bounds = Mapping[str, frozenset[float]]
"""The bounds that a family's buckets keep, by its name; other families keep all."""


def bounds_of(settings: MetricsSettings) -> Bounds:
    """Return the bounds that a node shows: for each requested one the nearest available one."""
    asked = [(_OF_REQUESTS, settings.request_bounds_ms), (_OF_MODELS, settings.model_bounds_ms)]
    return {
        name: frozenset(_nearest(each) for each in bounds_ms)
        for names, bounds_ms in asked
        if bounds_ms
        for name in names
    }


def others_taken(bounds_ms: Iterable[float]) -> str:
    """Say which bound replaces each unavailable one; "" if all of them are available."""
    return ", ".join(
        f"{found * 1000:g} for {each:g}"
        for each in bounds_ms
        if not math.isclose(found := _nearest(each), each / 1000)
    )


def coarser(families: Sequence[Family], bounds: Bounds) -> list[Family]:
    """Return the families with the buckets that they keep."""
    return [
        replace(each, samples=list(_kept(each.samples, bounds[each.name])))
        if each.name in bounds
        else each
        for each in families
    ]


def _kept(samples: Iterable[Sample], bounds: frozenset[float]) -> Iterable[Sample]:
    # Buckets are cumulative, and follow each other. What one that is left out has as an example is
    # one of the next that stays.
    exemplar: Exemplar | None = None
    for sample in samples:
        if sample.suffix != "_bucket":
            yield sample
            continue
        exemplar = sample.exemplar or exemplar
        bound = float(sample.labels["le"])
        if bound in bounds or math.isinf(bound):
            yield replace(sample, exemplar=exemplar)
            exemplar = None


def _nearest(asked_ms: float) -> float:
    # By their ratio: bounds grow by factors.
    return min(TIME_BOUNDS_S, key=lambda bound: abs(math.log(bound * 1000 / asked_ms)))
