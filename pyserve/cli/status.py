"""``pyserve status``: what runs, as a table or as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pyserve.cli.page import admin_url, page_url
from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session
from pyserve.driver.status import (
    DeploymentStatusOverview,
    EndedReplica,
    IngressStatus,
    MeshStatus,
    ReplicaCosts,
    ReplicaStatus,
    RoutedDeployment,
    plain_values,
    read_status,
)

if TYPE_CHECKING:
    from pyserve.driver.client import ControlClient

# Of a replica that has ended: the end of a traceback. Arbitrary.
_LAST_LINES = 6


@click.command(short_help="Show what runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML, as Ray Serve does.")
@click.option("--watch", is_flag=True, help="Go on with what changes, until Ctrl-C.")
@click.option("--proxy", is_flag=True, help="Show the ingress: its process, and where calls go.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def status(as_json: bool, as_yaml: bool, watch: bool, proxy: bool, controller: str | None) -> None:
    """Show the applications, deployments and replicas of the mesh.

    With --watch a terminal is drawn anew on each change; elsewhere each change is one line, and
    with --json one line of JSON with everything.
    """
    if as_yaml and (as_json or watch):
        raise click.UsageError(
            f"--yaml and {'--json' if as_json else '--watch'} print different things; leave one of "
            f"them out"
        )
    if watch and proxy:
        raise click.UsageError("--watch and --proxy show different things; leave one of them out")
    asks_data = as_json or as_yaml
    session = open_mesh(
        controller, "start one with `pyserve run module:app`, or name one with --controller"
    )
    try:
        if watch:
            _watch(session.client, as_json=as_json)
            return
        found = read_status(session.client.status())
        if proxy:
            # Rates are what has changed meanwhile; nothing announces that a second is over.
            threading.Event().wait(RATE_S)
            later = read_status(session.client.status())
    finally:
        end_session()
    if proxy:
        report = proxy_report(found, later)
        click.echo(_written(report, as_yaml=as_yaml) if asks_data else proxy_text(report))
        return
    click.echo(_written(plain_values(found), as_yaml=as_yaml) if asks_data else as_text(found))


def _written(values: Mapping[str, object], *, as_yaml: bool) -> str:
    text = json.dumps(values, indent=2)
    if not as_yaml:
        return text
    from pyserve.config.files import dump

    # Of plain values, without the types that they have here.
    return dump(json.loads(text)).rstrip()


def _watch(client: ControlClient, *, as_json: bool) -> None:
    replies = client.watch_status()
    found = map(read_status, replies)
    if as_json:
        for each in found:
            click.echo(json.dumps(plain_values(each)))
        return
    if not sys.stdout.isatty():
        told: dict[str, str] = {}
        for each in found:
            now = states(each)
            for line in changes(told, now):
                click.echo(f"{_time(time.time())}  {line}")
            told = now
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        for each in found:
            live.update(Text(as_text(each)), refresh=True)


def states(found: MeshStatus) -> dict[str, str]:
    """Return the state of each application and deployment, by its name."""
    states = {}
    for application in found.applications.values():
        states[application.name] = str(application.status)
        for deployment in application.deployments.values():
            running = sum(replica.state == "RUNNING" for replica in deployment.replicas)
            why = f": {deployment.message}" if deployment.message else ""
            name = f"{application.name}/{deployment.name}"
            states[name] = f"{deployment.status} {running}/{deployment.wanted} replicas{why}"
    return states


def changes(former: Mapping[str, str], present: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each state that differs or is gone."""
    for name, state in present.items():
        if former.get(name) != state:
            yield f"{name}  {state}"
    for name in former:
        if name not in present:
            yield f"{name}  is gone"


def as_text(found: MeshStatus) -> str:
    """Return the status as lines for people."""
    where = ", ".join(found.addresses) or "no address"
    lines = [f"pyserve {found.version}, process {found.controller_pid}, listening at {where}"]
    lines += [f"notice: {each}" for each in found.notices]
    lines += [_ingress_line(each) for each in found.ingresses]
    pages = dict.fromkeys(
        page_url(each) for each in found.ingresses if each.addresses and each.admin
    )
    lines += [f"page at {each}/, metrics at {each}/metrics" for each in pages]
    # It has the settings that they have.
    is_secured = any(each.speaks_tls for each in found.ingresses)
    own = admin_url(found.admin, is_secured=is_secured) if found.admin else ""
    if own and own not in pages:
        lines.append(f"metrics at {own}/metrics")
    for application in found.applications.values():
        prefix = f" ({application.route_prefix})" if application.route_prefix else ""
        since = f" since {_time(application.since_s)}" if application.since_s else ""
        lines.append(f"{application.name}{prefix}  {application.status}{since}")
        if application.target_capacity is not None:
            lines.append(f"  {application.target_capacity:g} % of its replicas (target_capacity)")
        for deployment in application.deployments.values():
            lines.extend(_deployment_lines(deployment))
    if not found.applications:
        lines.append("no applications")
    return "\n".join(lines)


def _ingress_line(ingress: IngressStatus) -> str:
    line = f"ingress on {ingress.node}  {ingress.state}  pid {ingress.pid}"
    if ingress.addresses and ingress.counts:
        waiting = f", {ingress.parked} of them waiting" if ingress.parked else ""
        line += (
            f"  {', '.join(ingress.addresses)}: {ingress.counts['connections']} connections "
            f"({ingress.counts['connections_refused']} refused so far), {ingress.in_flight} calls "
            f"in flight{waiting}"
        )
    return f"{line}  {ingress.message}" if ingress.message else line


def _deployment_lines(deployment: DeploymentStatusOverview) -> list[str]:
    running = sum(replica.state == "RUNNING" for replica in deployment.replicas)
    head = f"  {deployment.name}  {deployment.status}  {running}/{deployment.wanted} replicas"
    services = f"  {', '.join(deployment.services)}" if deployment.services else ""
    lines = [f"{head}{services}"]
    reason = deployment.reason or deployment.message
    since = f"since {_time(deployment.since_s)}" if deployment.since_s else ""
    if reason or since:
        lines.append(f"    {': '.join(filter(None, (since, reason)))}")
    if (scaling := deployment.scaling) is not None:
        wants = "would have" if scaling.is_advisory else "has"
        since = f" since {_time(scaling.since)}" if scaling.since else ""
        lines.append(f"    autoscaling {wants} {scaling.target} replicas{since}: {scaling.reason}")
    if (costs := deployment.costs) is not None:
        lines.append(f"    requests cost {_costs_text(costs)}")
    lines += [_replica_line(replica) for replica in deployment.replicas]
    for ended in deployment.ended:
        lines.extend(_ended_lines(ended))
    return lines


def _replica_line(replica: ReplicaStatus) -> str:
    line = (
        f"    {replica.replica_id}  {replica.state}  pid {replica.pid}  {replica.address}".rstrip()
    )
    return line if replica.costs is None else f"{line}  cost {_costs_text(replica.costs)}"


def _costs_text(costs: ReplicaCosts) -> str:
    budget = "" if costs.budget is None else f" of {costs.budget:g}"
    return f"{costs.running:g}{budget}, {costs.waiting:g} waiting"


def _ended_lines(ended: EndedReplica) -> list[str]:
    lines = [f"    {ended.replica_id}  ENDED {_time(ended.ended_at_s)}: {ended.summary}"]
    if len(ended.lines) > _LAST_LINES:
        lines.append(f"      ... `pyserve logs {ended.replica_id}` has more")
    return lines + [f"      {line}" for line in ended.lines[-_LAST_LINES:]]


def _time(unix_s: float) -> str:
    """Return a time as a clock on the wall has it, with the day."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


# The ingress as balancers show themselves: the process, each deployment, each replica.

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
