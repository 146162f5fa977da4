"""The description of one metric. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Metric:
    """One name of the catalogue.

    Attributes:
        name: As Prometheus shows it; counters end with ``_total``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        text: What it says, a sentence.
        labels: All that its samples may have.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]

    def with_labels(self, labels: tuple[str, ...]) -> Metric:
        """Return the same with labels before its own."""
        return replace(self, labels=(*labels, *self.labels))


def counter(name: str, text: str, *labels: str) -> Metric:
    """Return a number that grows until its process ends."""
    assert name.endswith("_total"), name
    return Metric(name, "counter", text, labels)


def gauge(name: str, text: str, *labels: str) -> Metric:
    """Return a number that goes up and down."""
    return Metric(name, "gauge", text, labels)


def histogram(name: str, text: str, *labels: str) -> Metric:
    """Return counts by bounds."""
    return Metric(name, "histogram", text, labels)
