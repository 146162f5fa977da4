"""The ingress as balancers show themselves: the process, each deployment, each replica. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyserve.driver.status import MeshStatus, RoutedDeployment

RATE_S = 1.0
"""Between the two looks of which the rates are the difference."""

# The columns of a deployment's line, with the counts that each column adds up.
_COLUMNS = {
    "calls": ("offered",),
    "done": ("completed",),
    # Attempts: an answer that tells an error, HTTP 500 too, is one.
    "unanswered": ("failed", "connect_failures"),
    "refused": ("refused_by_queue",),
    "expired": ("expired",),
    "retries": ("retries",),
    "hedges": ("hedges",),
    "ejections": ("ejections",),
}
_HEAD = ("", "state", "in flight", "waiting", "calls/s", *_COLUMNS)
_NUMBERS_FROM = 2
_NOWHERE = RoutedDeployment(in_flight=0, parked=0, counts={})


def proxy_report(before: MeshStatus, after: MeshStatus) -> dict[str, Any]:
    """Return what is known of the ingress, as JSON has it.

    Args:
        before: how it was a moment ago, for the rates.
        after: how it is.
    """
    ingress = after.ingress
    passed_s = ingress.uptime_s - before.ingress.uptime_s
    deployments = {
        (target := f"{application.name}/{deployment.name}"): {
            "status": str(deployment.status),
            **asdict(now := ingress.deployments.get(target, _NOWHERE)),
            "calls_per_second": _rate(
                before.ingress.deployments.get(target, _NOWHERE).counts,
                now.counts,
                "offered",
                passed_s,
            ),
            "replicas": {
                each.replica_id: {
                    "state": each.state,
                    "in_flight": ingress.in_flight_of_replica.get(each.replica_id, 0),
                    "address": each.address,
                    "direct_http": each.direct_http,
                    "direct_grpc": each.direct_grpc,
                }
                for each in deployment.replicas
            },
        }
        for application in after.applications.values()
        for deployment in application.deployments.values()
    }
    return {
        "version": after.version,
        "pid": after.controller_pid,
        "addresses": list(after.addresses),
        "node": ingress.node,
        "status": str(after.proxies.get(ingress.node, "")),
        "speaks_tls": ingress.speaks_tls,
        "uptime_s": ingress.uptime_s,
        "in_flight": ingress.in_flight,
        "parked": ingress.parked,
        "calls_per_second": _rate(before.ingress.counts, ingress.counts, "calls", passed_s),
        "counts": dict(ingress.counts),
        "limits": dict(ingress.limits),
        "deployments": deployments,
    }


def proxy_text(report: Mapping[str, Any]) -> str:
    """Return a report as lines for people."""
    if not report["node"]:
        return f"pyserve {report['version']}, process {report['pid']}: this mesh has no ingress"
    counts, limits = report["counts"], report["limits"]
    tls = ", over TLS" if report["speaks_tls"] else ""
    lines = [
        f"ingress of {report['node']}: {report['status']}, pyserve {report['version']}, process "
        f"{report['pid']}, up {report['uptime_s']:.0f} s",
        f"listening at {', '.join(report['addresses'])}{tls}, "
        f"{limits['io_threads']:.0f} I/O threads",
        f"connections: {counts['connections']} of {counts['connections_max']}, "
        f"{counts['connections_refused']} refused so far",
        f"calls: {counts['calls']} so far, {report['calls_per_second']:g}/s, "
        f"{report['in_flight']} in flight, {report['parked']} waiting",
        "answers of plain HTTP: "
        + ", ".join(f"{counts.get(f'http_{each}xx', 0)} × {each}xx" for each in range(2, 6)),
        "limits: " + ", ".join(f"{name} {value:g}" for name, value in limits.items()),
        "",
    ]
    return "\n".join([*lines, *_aligned([_HEAD, *_rows(report["deployments"])])])


def _rows(deployments: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for target, found in deployments.items():
        counts = found["counts"]
        yield (
            target,
            found["status"],
            str(found["in_flight"]),
            str(found["parked"]),
            f"{found['calls_per_second']:g}",
            *(str(sum(counts.get(each, 0) for each in names)) for names in _COLUMNS.values()),
        )
        for replica_id, replica in found["replicas"].items():
            yield f"  {replica_id}", replica["state"], str(replica["in_flight"])


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [
        max(len(row[column]) for row in rows if column < len(row)) for column in range(len(_HEAD))
    ]
    for row in rows:
        cells = [
            cell.ljust(widths[column]) if column < _NUMBERS_FROM else cell.rjust(widths[column])
            for column, cell in enumerate(row)
        ]
        yield "  ".join(cells).rstrip()


def _rate(before: Mapping[str, int], after: Mapping[str, int], name: str, passed_s: float) -> float:
    """Return calls a second; 0 if the ingress was restarted in between."""
    if passed_s <= 0:
        return 0.0
    return round(max(0, after.get(name, 0) - before.get(name, 0)) / passed_s, 1)
