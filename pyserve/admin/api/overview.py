"""The mesh on one page: what runs, its health, its activity and recent events. Pure.

Rates, shares and quantiles are of the time between two snapshots; outliers are found over a longer
time, since few calls say little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyserve.admin.api.outliers import CALLS_MIN, Served, outliers
from pyserve.admin.api.snapshot import (
    Batches,
    MeshSnapshot,
    Routed,
    Steps,
    by_target,
    ended,
    errors,
)
from pyserve.admin.histograms import Histogram, rate, seconds, share
from pyserve.wire.v1 import control_pb2

FORMAT = 1
"""The version of the JSON; it changes when the meaning of a name does."""
# More do not fit on a screen; the page of a deployment has all.
REPLICAS_SHOWN_MAX = 50
_MODELS_SHOWN_MAX = 20
_REFUSED = ("queue_full", "expired")


@dataclass(frozen=True, slots=True)
class Between:
    """The changes between two snapshots.

    Attributes:
        now: The later one.
        passed_s: The time between them, above 0.
        edges: What routers did in it, by caller and called deployment.
        routed: What all routers did in it, by "application/Deployment".
        ends: How calls of replicas ended in it, by id.
        batches: What batches left in it, as ``MeshSnapshot.batches``.
        steps: What steps were made in it, as ``MeshSnapshot.steps``.
        outliers: What sets outliers among replicas apart, by id.
    """

    now: MeshSnapshot
    passed_s: float
    edges: Mapping[tuple[str, str], Routed]
    routed: Mapping[str, Routed]
    ends: Mapping[str, Mapping[str, int]]
    batches: Mapping[tuple[str, str], Batches]
    steps: Mapping[tuple[str, str], Steps]
    outliers: Mapping[str, str]

    @classmethod
    def of(cls, then: MeshSnapshot, now: MeshSnapshot, long_ago: MeshSnapshot | None) -> Between:
        """Compare two snapshots.

        Args:
            then: The earlier snapshot.
            now: The later one.
            long_ago: Since when replicas are compared; ``None``: since their start.
        """
        longer, ends = by_target(now.edges_since(long_ago)), now.ends_since(long_ago)
        always, methods = by_target(now.edges), now.methods_since(long_ago)
        found: dict[str, str] = {}
        for target, routed in longer.items():
            served = {
                name: _served(each, ends.get(name, {}), methods.get(name, {}))
                for name, each in routed.replicas.items()
            }
            for name, each in served.items():
                if each.calls < CALLS_MIN:
                    # Routers avoid it, maybe because it is an outlier.
                    served[name] = _served(
                        always[target].replicas[name],
                        now.ends.get(name, {}),
                        now.methods.get(name, {}),
                    )
            found |= outliers(served)
        passed_s = max(now.at_s - then.at_s, 1e-3)
        edges = now.edges_since(then)
        return cls(
            now=now,
            passed_s=passed_s,
            edges=edges,
            routed=by_target(edges),
            ends=now.ends_since(then),
            batches=now.batches_since(then),
            steps=now.steps_since(then),
            outliers=found,
        )


def overview(between: Between) -> dict[str, Any]:
    """Return the mesh as JSON has it."""
    status = between.now.status
    return {
        "format": FORMAT,
        "at": round(between.now.unix_s, 3),
        "interval_s": round(between.passed_s, 3),
        "version": status.version,
        "controller_pid": status.controller_pid,
        "addresses": [each for ingress in status.ingresses for each in ingress.addresses],
        "notices": [*status.notices, *between.now.missing],
        "ingresses": [_ingress(each) for each in status.ingresses],
        "applications": [_application(each) for each in status.applications],
        "deployments": deployments(between),
        "edges": edges(between),
        "events": events_of(status, between.outliers, between.now.unix_s),
    }


def edges(between: Between) -> list[dict[str, Any]]:
    """Return which caller has called which deployment, including ingress clients and drivers."""
    status = between.now.status
    known = {f"{app.name}/{each.name}" for app in status.applications for each in app.deployments}
    return [
        {
            "from": caller,
            "to": target,
            "calls_per_second": rate(routed.counts.get("calls", 0), between.passed_s),
            "error_share": share(routed.errors, routed.ended),
            "p50_s": seconds(routed.answered.quantile(0.5)),
            "p99_s": seconds(routed.answered.quantile(0.99)),
            "in_flight": sum(routed.in_flight.values()),
            "parked": routed.parked_now,
        }
        for (caller, target), routed in sorted(between.edges.items())
        if target in known
    ]


def deployments(
    between: Between, replicas_max: int | None = REPLICAS_SHOWN_MAX
) -> list[dict[str, Any]]:
    """Return all deployments, the one with the most work first."""
    found = [
        deployment(between, application, each, replicas_max)
        for application in between.now.status.applications
        for each in application.deployments
    ]
    return sorted(found, key=_load, reverse=True)


def deployment(
    between: Between,
    application: control_pb2.ApplicationStatus,
    found: control_pb2.DeploymentStatus,
    replicas_max: int | None = None,
) -> dict[str, Any]:
    """Return one deployment with its replicas, outliers and busy ones first."""
    target = f"{application.name}/{found.name}"
    routed = between.routed.get(target, Routed())
    replicas = sorted(
        (_replica(between, routed, each) for each in found.replicas), key=_weight, reverse=True
    )
    return {
        "target": target,
        "application": application.name,
        "name": found.name,
        "state": found.state,
        "reason": found.reason or found.message,
        "since": found.since,
        "wanted": found.wanted,
        "running": sum(each.state == "RUNNING" for each in found.replicas),
        "services": list(found.services),
        "in_flight": sum(routed.in_flight.values()),
        "parked": routed.parked_now,
        "calls_per_second": rate(routed.counts.get("calls", 0), between.passed_s),
        "errors_per_second": rate(routed.errors, between.passed_s),
        "error_share": share(routed.errors, routed.ended),
        "refused_per_second": rate(
            sum(routed.counts.get(name, 0) for name in _REFUSED), between.passed_s
        ),
        "p50_s": seconds(routed.answered.quantile(0.5)),
        "p99_s": seconds(routed.answered.quantile(0.99)),
        "parked_p99_s": seconds(routed.parked.quantile(0.99)),
        "prediction": prediction(routed),
        "scaling": _scaling(found),
        # Their output is not for the page: `pyserve logs` has it.
        "ended": [
            {"replica": each.replica_id, "at": each.ended_at, "summary": each.summary}
            for each in found.ended
        ],
        "replicas": replicas[:replicas_max],
        "replicas_left_out": len(replicas[replicas_max:]) if replicas_max is not None else 0,
    }


def prediction(routed: Routed) -> dict[str, Any]:
    """Return the mean errors of the router's predictions of when calls end."""
    calls = routed.early.count + routed.late.count
    return {
        "calls": calls,
        "late_share": share(routed.late.count, calls),
        "early_mean_s": seconds(routed.early.mean_s),
        "late_mean_s": seconds(routed.late.mean_s),
        "late_p99_s": seconds(routed.late.quantile(0.99)),
    }


def _served(
    attempts: Histogram, codes: Mapping[str, int], methods: Mapping[str, Histogram]
) -> Served:
    # Times of good and bad answers: where errors come at once, short times are theirs.
    return Served(max(attempts.count, ended(codes)), errors(codes), attempts, methods)


def _replica(between: Between, routed: Routed, found: control_pb2.ReplicaStatus) -> dict[str, Any]:
    attempts = routed.replicas.get(found.replica_id, Histogram())
    codes = between.ends.get(found.replica_id, {})
    models = between.now.models.get(found.replica_id, ())
    return {
        "id": found.replica_id,
        "state": found.state,
        "pid": found.pid,
        "node": found.node,
        "address": found.endpoints.address,
        "in_flight": routed.in_flight.get(found.replica_id, 0),
        "calls_per_second": rate(attempts.count, between.passed_s),
        "error_share": share(errors(codes), ended(codes)),
        "mean_s": seconds(attempts.mean_s),
        "p50_s": seconds(attempts.quantile(0.5)),
        "p99_s": seconds(attempts.quantile(0.99)),
        "models": list(models[:_MODELS_SHOWN_MAX]),
        "models_left_out": len(models[_MODELS_SHOWN_MAX:]),
        "odd": between.outliers.get(found.replica_id, ""),
    }


def _application(found: control_pb2.ApplicationStatus) -> dict[str, Any]:
    return {
        "name": found.name,
        "route_prefix": found.route_prefix,
        "state": found.state,
        "reason": found.reason or found.message,
        "since": found.since,
        "ingress_deployment": found.ingress_deployment,
    }


def _ingress(found: control_pb2.IngressStatus) -> dict[str, Any]:
    return {
        "node": found.node,
        "state": found.state,
        "message": found.message,
        "since": found.since,
        "pid": found.pid,
        "addresses": list(found.addresses),
        "in_flight": found.in_flight,
        "parked": found.parked,
        "connections": found.counts.get("connections", 0),
        "uptime_s": round(found.uptime_s, 1),
    }


def _scaling(found: control_pb2.DeploymentStatus) -> dict[str, Any] | None:
    if not found.HasField("scaling"):
        return None
    scaling = found.scaling
    return {
        "target": scaling.target,
        "pending": scaling.pending,
        "reason": scaling.reason,
        "since": scaling.since,
        "min_replicas": scaling.min_replicas,
        "max_replicas": scaling.max_replicas,
        "is_advisory": scaling.is_advisory,
        "decisions": [
            {"at": each.at, "before": each.before, "after": each.after, "reason": each.reason}
            for each in scaling.decisions
        ],
    }


def _load(found: Mapping[str, Any]) -> tuple[Any, ...]:
    return found["parked"] > 0, found["calls_per_second"], found["in_flight"], found["target"]


def _weight(found: Mapping[str, Any]) -> tuple[Any, ...]:
    return bool(found["odd"]), found["in_flight"], found["calls_per_second"], found["id"]


# Recent events, newest first, derived from the states of the parts of a mesh.
#
# No list of events is stored: each part knows its state, since when it has it, and why.

_EVENTS_MAX = 50
# States that need attention, and those that pass by themselves.
_BAD = frozenset({"UNHEALTHY", "DEPLOY_FAILED", "SILENT"})
_PASSING = frozenset({"DEPLOYING", "UPDATING", "DRAINING", "DELETING", "STARTING", "NOT_STARTED"})


def events_of(
    status: control_pb2.StatusReply, outliers: Mapping[str, str], unix_s: float
) -> list[dict[str, Any]]:
    """Return the known events; current states without a known beginning come first."""
    found = [*_now(status, outliers, unix_s), *_dated(status)]
    found.sort(key=lambda event: event["at"], reverse=True)
    return found[:_EVENTS_MAX]


def _now(
    status: control_pb2.StatusReply, outliers: Mapping[str, str], unix_s: float
) -> Iterator[dict[str, Any]]:
    for application in status.applications:
        for deployment in application.deployments:
            for replica in deployment.replicas:
                where = f"{application.name}/{deployment.name}"
                if words := outliers.get(replica.replica_id):
                    yield _event(unix_s, "odd", where, f"{replica.replica_id}: {words}", "warning")
                if replica.state in _BAD:
                    text = f"{replica.replica_id} is {replica.state}"
                    yield _event(unix_s, "replica", where, text, "bad")


def _dated(status: control_pb2.StatusReply) -> Iterator[dict[str, Any]]:
    for ingress in status.ingresses:
        if ingress.since:
            text = f"{ingress.state}: {ingress.message}" if ingress.message else ingress.state
            where = f"ingress on {ingress.node}"
            yield _event(ingress.since, "ingress", where, text, _level(ingress.state))
    for application in status.applications:
        if application.since:
            text = _with_reason(application.state, application.reason or application.message)
            level = _level(application.state)
            yield _event(application.since, "application", application.name, text, level)
        for deployment in application.deployments:
            where = f"{application.name}/{deployment.name}"
            if deployment.since:
                text = _with_reason(deployment.state, deployment.reason or deployment.message)
                yield _event(deployment.since, "deployment", where, text, _level(deployment.state))
            for decision in deployment.scaling.decisions:
                text = f"{decision.after} replicas after {decision.before}: {decision.reason}"
                yield _event(decision.at, "scaling", where, text, "info")
            for replica in deployment.ended:
                text = f"{replica.replica_id} {replica.summary}"
                yield _event(replica.ended_at, "replica", where, text, "bad")


def _with_reason(state: str, reason: str) -> str:
    return f"{state}: {reason}" if reason else state


def _level(state: str) -> str:
    return "bad" if state in _BAD else "warning" if state in _PASSING else "info"


def _event(at: float, kind: str, where: str, text: str, level: str) -> dict[str, Any]:
    return {"at": round(at, 3), "kind": kind, "where": where, "text": text, "level": level}
