"""One deployment with all that is known of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyserve.admin.api.histograms import Histogram
from pyserve.admin.api.look import Routed
from pyserve.admin.api.overview import Between, deployment


def deployment_details(between: Between, application: str, name: str) -> dict[str, Any] | None:
    """Return one deployment as JSON has it, ``None`` if there is none of that name."""
    found = next(
        (
            (of, each)
            for of in between.now.status.applications
            for each in of.deployments
            if (of.name, each.name) == (application, name)
        ),
        None,
    )
    if found is None:
        return None
    target = f"{application}/{name}"
    routed = between.routed.get(target, Routed())
    return {
        **deployment(between, *found),
        "interval_s": round(between.passed_s, 3),
        "counts": dict(routed.counts),
        "releases": dict(routed.releases),
        "latency": histogram(routed.answered),
        "parked_wait": histogram(routed.parked),
    }


def histogram(found: Histogram) -> Mapping[str, Any]:
    """Return a histogram as JSON has it."""
    return {
        "buckets": list(found.bounds),
        "counts": list(found.counts),
        "sum": round(found.sum_s, 6),
    }
