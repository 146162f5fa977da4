"""Fewer histogram buckets for Prometheus, which make up most of a large node's metrics. Pure.

All processes count with the same bounds. The text for Prometheus may leave some of them out without
losing calls; it cannot have other bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyserve.config.metrics import MetricsSettings
from pyserve.observe.metrics import Exemplar, Family, Sample
from pyserve.observe.metrics.tally import TIME_BOUNDS_S

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
