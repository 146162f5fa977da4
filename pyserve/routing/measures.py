"""Metrics of routing and of clients, from the counts of the native side. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from pyserve.observe.metrics import Scrape
from pyserve.observe.metrics.catalogue import OF_COUNTS, Metric
from pyserve.observe.metrics.families import TIME_BOUNDS_S, Exemplar, code_name

# By the counters of `rust.Ingress.stats`.
_ENDED_BY = {
    "forwarded": "replica",
    "answered_here": "ingress",
    "cancelled_by_client": "client",
}
_LIMITS = {
    "connections_refused": "connections",
    "displaced": "places",
    "idle_closed": "idle_memory",
    "idle_timeouts": "idle_time",
    "header_timeouts": "header_time",
    "body_timeouts": "body_time",
    "keep_alive_timeouts": "keep_alive_time",
    "header_bytes_exceeded": "header_bytes",
    "body_bytes_exceeded": "body_bytes",
    "floods": "flood",
    "slow_clients": "slow_client",
    "delayed_connections": "delay",
}
_FAULTS = {
    "tls_failures": "tls_handshake",
    "proxy_headers_malformed": "proxy_header",
    "panics": "panic",
}


def add_table(
    scrape: Scrape,
    table: Mapping[str, Mapping[str, object]],
    measures: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    caller: str,
    caller_id: str,
    exemplars: Exemplars | None = None,
) -> None:
    """Add what a router has done for each deployment.

    Args:
        scrape: Takes it.
        table: ``rust.RoutingTable.stats``.
        measures: ``rust.RoutingTable.measures``; ``None``: times are left out.
        caller: Whose calls they are: ``ingress``, ``driver``, or ``application/Deployment``.
        caller_id: Which of these: a process id, or a replica.
        exemplars: Of sampled calls; ``None``: none are known.
    """
    bare = scrape.without_labels()
    for target, stats in table.items():
        application, _, deployment = target.partition("/")
        if not _count(stats, "offered") and (caller != "ingress" or application == "pyserve"):
            # Every router knows all deployments; each handle calls few, and few look for health.
            continue
        labels = {
            "application": application,
            "deployment": deployment,
            "caller": caller,
            "caller_id": caller_id,
        }
        for metric in OF_COUNTS:
            _add_counts(bare, metric, stats, labels)
        if measures is not None and (measured := measures.get(target)) is not None:
            _add_measures(bare, measured, labels)
            _add_times(bare, target, measured, exemplars, labels)
        in_flight = stats["in_flight"]
        assert isinstance(in_flight, dict), "it is by replica"
        for replica, value in in_flight.items():
            bare.add("pyserve_router_in_flight_calls", value, replica=replica, **labels)


def _add_counts(
    bare: Scrape, metric: Metric, stats: Mapping[str, object], labels: dict[str, str]
) -> None:
    values: dict[str, int] = defaultdict(int)
    for name, value in metric.counts.items():
        values[value] += _count(stats, name)
    for value, count in values.items():
        own = {metric.own_label: value} if value else {}
        bare.add(metric.name, count, **own, **labels)


def _add_times(
    bare: Scrape,
    target: str,
    measured: Mapping[str, Any],
    exemplars: Exemplars | None,
    labels: dict[str, str],
) -> None:
    for outcome in ("ok", "failed"):
        times = measured[f"latency_{outcome}"]
        found = None if exemplars is None else exemplars.of(target, outcome)
        bare.add_native("pyserve_router_call_seconds", times, found, outcome=outcome, **labels)


def _add_measures(bare: Scrape, measured: Mapping[str, Any], labels: dict[str, str]) -> None:
    for direction in ("early", "late"):
        times = measured[f"prediction_{direction}"]
        name = "pyserve_router_prediction_error_seconds"
        bare.add_native(name, times, direction=direction, **labels)
    bare.add_native("pyserve_router_parked_seconds", measured["parked_wait"], **labels)
    bare.add("pyserve_router_kept_wrongly_seconds_total", measured["kept_wrongly_s"], **labels)
    for replica, times in measured["attempts"].items():
        bare.add_native("pyserve_router_attempt_seconds", times, replica=replica, **labels)
    for replica, value in measured["sent"].items():
        bare.add("pyserve_router_picks_total", value, replica=replica, **labels)
    for tier, value in measured["sent_by_tier"].items():
        bare.add("pyserve_router_tier_picks_total", value, tier=tier, **labels)
    for reason, value in measured["releases"].items():
        bare.add("pyserve_router_releases_total", value, reason=reason, **labels)
    for reason, value in measured["refused"].items():
        bare.add("pyserve_router_refused_calls_total", value, reason=reason, **labels)
    ends: dict[int | str, int] = {}
    ends.update(measured["codes"])
    ends.update(measured["http"], left=measured["left"])
    for code, value in ends.items():
        bare.add("pyserve_router_ended_calls_total", value, code=code_name(code), **labels)
    bare.add("pyserve_router_request_bytes_total", measured["request_bytes"], **labels)
    bare.add("pyserve_router_response_bytes_total", measured["response_bytes"], **labels)


def add_ingress(
    scrape: Scrape,
    counts: Mapping[str, int],
    doors: Mapping[str, Mapping[str, int]],
    access: Mapping[str, int] | None,
) -> None:
    """Add what clients of an ingress did.

    Args:
        scrape: Takes it.
        counts: ``rust.Ingress.stats``, with ``in_flight``.
        doors: ``rust.Ingress.doors``.
        access: ``rust.AccessPolicy.stats``; ``None``: there are no rules.
    """
    scrape.add("pyserve_ingress_calls_total", counts["calls"])
    scrape.add("pyserve_ingress_open_calls", counts["in_flight"])
    scrape.add("pyserve_ingress_connections", counts["connections"])
    scrape.add("pyserve_ingress_connections_max", counts["connections_max"])
    for door, requests in doors.items():
        for status, value in requests.items():
            if status == "open":
                scrape.add("pyserve_ingress_open_requests", value, door=door)
            else:
                scrape.add("pyserve_ingress_requests_total", value, door=door, status=status)
    for name, by in _ENDED_BY.items():
        scrape.add("pyserve_ingress_ended_calls_total", counts[name], by=by)
    for name, limit in _LIMITS.items():
        scrape.add("pyserve_ingress_limits_reached_total", counts[name], limit=limit)
    for name, fault in _FAULTS.items():
        scrape.add("pyserve_ingress_faults_total", counts[name], fault=fault)
    for decision in ("allowed", "denied", "unauthenticated") if access is not None else ():
        value = access[decision] if access is not None else 0
        scrape.add("pyserve_ingress_access_decisions_total", value, decision=decision)


def _count(stats: Mapping[str, object], name: str) -> int:
    value = stats[name]
    assert isinstance(value, int), name
    return value


# Which sampled call was the last in each bucket of a histogram: from a number to a trace.

_NS = 1e9
# Codes of gRPC (google.rpc.Code) and statuses that blame the replica and not the request, as the
# router's own histograms have it (`router_rs/dispatch/src/outcome.rs`).
_FAILED_CODES = frozenset({2, 4, 8, 13, 14, 15})
_FAILED_STATUSES = frozenset({500, 502, 503, 504})


class SampledCall(Protocol):
    """The fields of ``rust.CallRecord`` that are read here."""

    @property
    def application(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def trace_id(self) -> bytes: ...
    @property
    def is_sampled(self) -> bool: ...
    @property
    def start_unix_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def http_status(self) -> int: ...


class Exemplars:
    """The last sampled call by deployment, outcome and bucket.

    One thread takes and keeps; others may look meanwhile.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, dict[int, Exemplar]]] = {}

    def take(self, records: Sequence[SampledCall]) -> None:
        """Take calls that have ended, oldest first."""
        for record in records:
            if record.is_sampled and record.trace_id and record.deployment:
                self._take(record)

    def of(self, target: str, outcome: str) -> Mapping[int, Exemplar]:
        """Return those of one deployment and outcome, by the numbers of their buckets."""
        return self._found.get(target, {}).get(outcome, {})

    def keep(self, targets: Collection[str]) -> None:
        """Forget all deployments but ``targets``."""
        for gone in self._found.keys() - set(targets):
            del self._found[gone]

    def _take(self, record: SampledCall) -> None:
        failed = record.code in _FAILED_CODES or record.http_status in _FAILED_STATUSES
        took_s = record.duration_ns / _NS
        ended_at = (record.start_unix_ns + record.duration_ns) / _NS
        by_outcome = self._found.setdefault(f"{record.application}/{record.deployment}", {})
        by_bucket = by_outcome.setdefault("failed" if failed else "ok", {})
        by_bucket[bisect_left(TIME_BOUNDS_S, took_s)] = (record.trace_id.hex(), took_s, ended_at)
