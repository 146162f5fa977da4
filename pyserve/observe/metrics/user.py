"""The metrics of user code: names, tags and values, kept in the process for scrapes.

The classes of ``pyserve.metrics`` write here. Metrics with the same name are one metric, wherever
they were made, because a class that travels to a replica makes its metrics again there. Metrics
that user code has made with prometheus_client itself are shown as well.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.observe.metrics.families import Exemplar, Family, Sample, Scrape

_LOGGER = logging.getLogger(__name__)
# Prometheus's data model; colons are for recording rules.
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# A tag with a value for each user or request would take the memory of the replica, and of
# Prometheus.
SERIES_MAX = 2000
# Tags that the process adds to every sample.
RESERVED_TAGS = ("application", "deployment", "replica")
# prometheus_client's own metrics of the process, which pyserve shows already.
_OF_PROCESS = ("process_", "python_")

Key = tuple[str, ...]


@dataclass(slots=True)
class UserMetric:
    """All values of one name.

    Attributes:
        kind: ``counter``, ``gauge`` or ``histogram``.
        name: As user code gave it.
        text: The same.
        tag_keys: Names of its tags.
        bounds: Of a histogram.
        values: Of a counter or a gauge, by the values of the tags.
        histograms: Of a histogram, by the same: counts by bound, then the sum.
        dropped: Values for which there was no series any more.
    """

    kind: str
    name: str
    text: str
    tag_keys: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    values: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, list[float]] = field(default_factory=dict)
    dropped: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key: Key, amount: float) -> None:
        """Add to a counter."""
        with self._lock:
            if self._has_room(key):
                self.values[key] = self.values.get(key, 0.0) + amount

    def set(self, key: Key, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            if self._has_room(key):
                self.values[key] = value

    def observe(self, key: Key, value: float) -> None:
        """Count a value of a histogram."""
        with self._lock:
            if not self._has_room(key):
                return
            counted = self.histograms.get(key)
            if counted is None:
                counted = self.histograms[key] = [0.0] * (len(self.bounds) + 2)
            counted[bisect_left(self.bounds, value)] += 1
            counted[-1] += value

    def _has_room(self, key: Key) -> bool:
        series = len(self.values) + len(self.histograms)
        if key in self.values or key in self.histograms or series < SERIES_MAX:
            return True
        if not self.dropped:
            _LOGGER.warning(
                "metric %r has %d combinations of tags; values of others are dropped: use tags "
                "whose values are few",
                self.name,
                SERIES_MAX,
            )
        self.dropped += 1
        return False

    def family(self) -> Family:
        """Return what has been counted so far."""
        # OpenMetrics has it so; Prometheus expects it.
        name = self.name.removesuffix("_total") if self.kind == "counter" else self.name
        family = Family(name, self.kind, self.text)
        with self._lock:
            values = dict(self.values)
            histograms = {key: list(value) for key, value in self.histograms.items()}
        for key, value in values.items():
            suffix = "_total" if self.kind == "counter" else ""
            family.samples.append(Sample(suffix, self._labels(key), value))
        for key, counted in histograms.items():
            found = _Counted(self.bounds, counted[:-1], counted[-1])
            family.add_histogram(found, self._labels(key))
        return family

    def _labels(self, key: Key) -> dict[str, str]:
        return dict(zip(self.tag_keys, key, strict=True))


@dataclass(frozen=True, slots=True)
class _Counted:
    bounds: Sequence[float]
    counts: Sequence[float]
    sum: float


class UserMetrics:
    """The metrics of user code in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[str, UserMetric] = {}

    def metric(
        self,
        kind: str,
        name: str,
        text: str,
        tag_keys: tuple[str, ...],
        bounds: tuple[float, ...] = (),
    ) -> UserMetric:
        """Return the metric of that name; the same one for all who ask alike.

        Raises:
            ValueError: The name cannot be had, or is that of another metric.
        """
        check_name(name)
        with self._lock:
            known = self._metrics.setdefault(name, UserMetric(kind, name, text, tag_keys, bounds))
        if (kind, tag_keys, bounds) != (known.kind, known.tag_keys, known.bounds):
            raise ValueError(
                f"metric {name!r} is a {known.kind} with the tag keys {known.tag_keys} already; "
                f"give this {kind} with {tag_keys} another name"
            )
        return known

    def add_to(self, scrape: Scrape) -> None:
        """Add all of them, and those of prometheus_client if user code has loaded it."""
        with self._lock:
            metrics = list(self._metrics.values())
        for metric in metrics:
            scrape.add_family(metric.family())
            if metric.dropped:
                scrape.add("pyserve_user_values_dropped_total", metric.dropped, metric=metric.name)
        client = sys.modules.get("prometheus_client")
        if client is not None:
            _add_client(scrape, client)


PROCESS_USER_METRICS = UserMetrics()
"""Of all user code in this process: it makes metrics where it likes, and has nobody to ask."""


def check_name(name: str) -> None:
    """Refuse what Prometheus does not take, and the names of pyserve itself.

    Raises:
        ValueError: The name cannot be had.
    """
    if not _NAME.fullmatch(name) or name.startswith("pyserve_"):
        raise ValueError(
            f"metric name {name!r} is not allowed; write letters, digits and underscores, no digit "
            f"first, and not pyserve_ in front"
        )


def _add_client(scrape: Scrape, client: Any) -> None:
    for found in client.REGISTRY.collect():
        if found.name.startswith(_OF_PROCESS):
            continue
        family = Family(found.name, found.type, found.documentation)
        for sample in found.samples:
            # Times when a series began, which Prometheus does not ask for.
            if not sample.name.endswith("_created"):
                suffix = sample.name.removeprefix(found.name)
                exemplar = _exemplar(sample.exemplar)
                family.samples.append(Sample(suffix, sample.labels, sample.value, exemplar))
        if family.samples:
            scrape.add_family(family)


def _exemplar(found: Any) -> Exemplar | None:
    if found is None or "trace_id" not in found.labels or found.timestamp is None:
        return None
    return found.labels["trace_id"], found.value, float(found.timestamp)
