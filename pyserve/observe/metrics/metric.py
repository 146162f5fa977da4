"""The description of one metric. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """One name of the catalogue.

    Attributes:
        name: As Prometheus shows it; counters end with ``_total``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        text: What it says, a sentence.
        labels: All that its samples may have.
        counts: Of routers: the native counts (``router_rs/core/src/router/types.rs``) that it adds
            up, each with the value of the metric's own label; ``""``: it has none.
        ray: Its names in Ray Serve; Markdown.
        otel: Its names in OpenTelemetry and gRPC; Markdown.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    counts: Mapping[str, str] = field(default_factory=dict)
    ray: str = ""
    otel: str = ""

    def with_labels(self, labels: tuple[str, ...]) -> Metric:
        """Return the same with labels before its own."""
        return replace(self, labels=(*labels, *self.labels))

    @property
    def own_label(self) -> str:
        """The label that its ``counts`` have values of."""
        return self.labels[-1]


def counter(name: str, text: str, *labels: str, **more: Any) -> Metric:
    """Return a number that grows until its process ends; ``more`` is as in ``Metric``."""
    assert name.endswith("_total"), name
    return Metric(name, "counter", text, labels, **more)


def gauge(name: str, text: str, *labels: str, **more: Any) -> Metric:
    """Return a number that goes up and down."""
    return Metric(name, "gauge", text, labels, **more)


def histogram(name: str, text: str, *labels: str, **more: Any) -> Metric:
    """Return counts by bounds."""
    return Metric(name, "histogram", text, labels, **more)
