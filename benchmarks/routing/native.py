"""What the router itself takes: a decision, and a call that waits for a place.

Both are measured in Rust, by ``cargo bench``; the bars are those of the project's targets.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.cargo_bench import bench_rows

# In nanoseconds, of one decision among 64 replicas. The policies that look at two, and all others.
_PICK_OF_TWO_MAX_NS = 100.0
_SCAN_MAX_NS = 500.0
# With four threads behind one lock.
_LOCKED_P99_MAX_NS = 2_000.0
# How often each policy is measured.
_PICK_RUNS = 11
# From the end of the answer that frees a place, read from the replica's socket, to the next call,
# written to it; median.
_PARKED_MAX_US = 50.0


def picks() -> dict[str, Any]:
    """Return what a decision costs, by policy, and whether the bars hold.

    The machine changes from minute to minute how long a cache line takes from core to core, and
    with it how threads hand over the lock; so the policies take turns, each is measured so often in
    a new process, and the bars are for the medians.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for _ in range(_PICK_RUNS):
        for row in bench_rows("pyserve-router-net", "pick"):
            rows.setdefault(row.pop("policy"), []).append(row)
    return {policy: _middle_of(policy, runs) for policy, runs in rows.items()}


def _middle_of(policy: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    middle: dict[str, Any] = _medians(runs)
    alone_max_ns = _PICK_OF_TWO_MAX_NS if policy == "P2c" else _SCAN_MAX_NS
    return {
        **middle,
        "locked_runs_ns": [run["locked_ns"] for run in runs],
        "holds": (
            middle["ns_by_replicas"]["64"]["offer"] <= alone_max_ns
            and middle["locked_ns"]["p99"] <= _LOCKED_P99_MAX_NS
        ),
    }


def _medians(runs: list[Any]) -> Any:
    """Return what has the shape of each run, and the median wherever those have numbers."""
    if isinstance(runs[0], dict):
        return {name: _medians([run[name] for run in runs]) for name in runs[0]}
    return statistics.median(runs)


def loaded() -> dict[str, Any]:
    """Return how long calls of a busy ingress take for their decision, by policy.

    There is no bar: beside the decision this has the lock of four threads that share the cores with
    clients and replicas, and caches that other work has used since.
    """
    rows = bench_rows("pyserve-router-net", "loaded", features="stopwatch")
    return {row.pop("policy"): row for row in rows}


def parked() -> dict[str, Any]:
    """Return how soon a waiting call follows one that ends, and whether the bar holds.

    The bar is for the ingress; ``parked_us`` has the way over two sockets as well.
    """
    (row,) = bench_rows("pyserve-router-net", "parked", features="stopwatch")
    return {**row, "holds": row["inside_us"]["p50"] <= _PARKED_MAX_US}
