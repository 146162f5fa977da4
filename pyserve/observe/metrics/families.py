"""What metrics are made of: families as plain data, tallies, and the label of how a call ended.

Families travel as JSON from a process to its node's admin server. A tally is a histogram in plain
lists: what is counted on a path of calls costs one search and two sums.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyserve.observe.metrics.catalogue import METRICS

MODELS = "pyserve_models"
"""The family with one sample per model. Its labels have ids, which clients choose. So only the page
of the node and ``pyserve top`` get it, and ``/metrics`` does not."""

# A sample's exemplar: the trace id in hexadecimal digits, the value, and its Unix time.
Exemplar = tuple[str, float, float]


class Histogram(Protocol):
    """Counts by bounds, as ``Tally`` has them."""

    @property
    def bounds(self) -> Sequence[float]:
        """Upper bounds."""

    @property
    def counts(self) -> Sequence[float]:
        """One count more than there are bounds; not cumulative."""

    @property
    def sum(self) -> float:
        """Sum of the values."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of an exposition.

    Attributes:
        suffix: After the family's name: ``""``, ``_total``, ``_bucket``, ``_count``, ``_sum``.
        labels: By name.
        value: A number.
        exemplar: See ``Exemplar``; of buckets and totals.
    """

    suffix: str
    labels: Mapping[str, str]
    value: float
    exemplar: Exemplar | None = None


@dataclass(slots=True)
class Family:
    """All samples of one name.

    Attributes:
        name: Without the suffix of its samples.
        kind: ``counter``, ``gauge`` or ``histogram``; of what user code brings, also others of
            OpenMetrics.
        text: What it says, a sentence.
        samples: See ``Sample``.
    """

    name: str
    kind: str
    text: str
    samples: list[Sample] = field(default_factory=list)

    def add_histogram(
        self,
        counted: Histogram,
        labels: Mapping[str, str],
        exemplars: Mapping[int, Exemplar] | None = None,
    ) -> None:
        """Add what has been counted by bounds; ``exemplars`` by the numbers of their buckets."""
        total = 0.0
        counts = list(counted.counts)
        for number, bound in enumerate((*counted.bounds, float("inf"))):
            total += counts[number]
            limited = {**labels, "le": _bound(bound)}
            found = None if exemplars is None else exemplars.get(number)
            self.samples.append(Sample("_bucket", limited, total, found))
        self.samples.append(Sample("_count", labels, total))
        self.samples.append(Sample("_sum", labels, counted.sum))

    def to_plain(self) -> list[Any]:
        """Return it as lists and dicts."""
        samples = [[s.suffix, dict(s.labels), s.value, s.exemplar] for s in self.samples]
        return [self.name, self.kind, self.text, samples]

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> Family:
        """Read what ``to_plain`` has made; ``ValueError`` if it is none."""
        try:
            name, kind, text, samples = plain
            found = [
                Sample(suffix, labels, float(value), None if mark is None else tuple(mark))
                for suffix, labels, value, mark in samples
            ]
        except TypeError as error:
            raise ValueError(f"not a metric family: {error}") from error
        return cls(name, kind, text, found)


class Scrape:
    """Takes what the sources of one process have to say, at one scrape.

    Args:
        labels: Of every sample.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._families: dict[str, Family] = {}

    def add(self, name: str, value: float, /, **labels: str) -> None:
        """Add one sample of a counter or a gauge of the catalogue, by its name there."""
        family = self._family(name)
        suffix = "_total" if family.kind == "counter" else ""
        family.samples.append(Sample(suffix, {**self._labels, **labels}, value))

    def add_histogram(
        self,
        name: str,
        counted: Histogram,
        exemplars: Mapping[int, Exemplar] | None = None,
        /,
        **labels: str,
    ) -> None:
        """Add the counts of a histogram of the catalogue; exemplars as ``Family`` has them."""
        self._family(name).add_histogram(counted, {**self._labels, **labels}, exemplars)

    def add_native(
        self,
        name: str,
        counted: Mapping[str, Any],
        exemplars: Mapping[int, Exemplar] | None = None,
        /,
        **labels: str,
    ) -> None:
        """Add a histogram of the native side: its buckets, counts and sum."""
        found = _Counted(counted["buckets"], counted["counts"], counted["sum"])
        self.add_histogram(name, found, exemplars, **labels)

    def add_family(self, family: Family) -> None:
        """Add a family that is not of the catalogue, with the labels of this process."""
        samples = [
            Sample(s.suffix, {**self._labels, **s.labels}, s.value, s.exemplar)
            for s in family.samples
        ]
        known = self._families.setdefault(
            family.name, Family(family.name, family.kind, family.text)
        )
        known.samples += samples

    def without_labels(self) -> Scrape:
        """Return what adds to the same families, without the labels of this process."""
        bare = Scrape({})
        bare._families = self._families
        return bare

    def families(self) -> list[Family]:
        """Return all of them."""
        return list(self._families.values())

    def _family(self, name: str) -> Family:
        found = self._families.get(name)
        if found is None:
            metric = METRICS[name]
            found = Family(name.removesuffix("_total"), metric.kind, metric.text)
            self._families[name] = found
        return found


Source = Callable[[Scrape], object]
"""Adds what a part of a process has counted to a scrape."""


@dataclass(frozen=True, slots=True)
class _Counted:
    bounds: Sequence[float]
    counts: Sequence[float]
    sum: float


def _bound(value: float) -> str:
    """Return a bound as Prometheus writes it."""
    return "+Inf" if value == float("inf") else repr(float(value))


# google.rpc.Code: the numbers of gRPC's codes are their places here.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)


def code_name(code: int | str) -> str:
    """Return the name of one of gRPC's codes, or a class of HTTP's statuses as it is."""
    if isinstance(code, str):
        return code
    # A peer may send any number.
    return _CODES[code] if 0 <= code < len(_CODES) else "UNKNOWN"


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
