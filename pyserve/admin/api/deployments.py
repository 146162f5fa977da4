"""One deployment with everything known about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyserve.admin.api.histograms import Histogram
from pyserve.admin.api.overview import Between, deployment
from pyserve.admin.api.snapshot import Batches, Routed
from pyserve.admin.rounding import rate, seconds, share


def deployment_details(between: Between, application: str, name: str) -> dict[str, Any] | None:
    """Return one deployment as JSON, ``None`` if there is none with that name."""
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
        "batches": [
            _batches(function, each, between.passed_s)
            for (of, function), each in sorted(between.batches.items())
            if of == target
        ],
        "latency": histogram(routed.answered),
        "parked_wait": histogram(routed.parked),
    }


def _batches(function: str, found: Batches, passed_s: float) -> dict[str, Any]:
    left = sum(found.reasons.values())
    reasons = sorted(found.reasons.items(), key=lambda item: item[1], reverse=True)
    return {
        "function": function,
        "batches_per_second": rate(left, passed_s),
        "size_mean": seconds(found.sizes.mean_s),
        "wait_mean_s": seconds(found.waits.mean_s),
        "wait_p99_s": seconds(found.waits.quantile(0.99)),
        "run_mean_s": seconds(found.runs.mean_s),
        "waiting": found.waiting_now,
        "reasons": [
            {"reason": reason, "batches": count, "share": share(count, left)}
            for reason, count in reasons
            if count
        ],
        "sizes": histogram(found.sizes),
    }


def histogram(found: Histogram) -> Mapping[str, Any]:
    """Return a histogram as JSON."""
    return {
        "buckets": list(found.bounds),
        "counts": list(found.counts),
        "sum": round(found.sum_s, 6),
    }
