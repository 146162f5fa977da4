"""Recent events, newest first, derived from the states of the parts of a mesh. Pure.

No list of events is stored: each part knows its state, since when it has it, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyserve.wire.v1 import control_pb2

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
            for ended in deployment.ended:
                text = f"{ended.replica_id} {ended.summary}"
                yield _event(ended.ended_at, "replica", where, text, "bad")


def _with_reason(state: str, reason: str) -> str:
    return f"{state}: {reason}" if reason else state


def _level(state: str) -> str:
    return "bad" if state in _BAD else "warning" if state in _PASSING else "info"


def _event(at: float, kind: str, where: str, text: str, level: str) -> dict[str, Any]:
    return {"at": round(at, 3), "kind": kind, "where": where, "text": text, "level": level}
