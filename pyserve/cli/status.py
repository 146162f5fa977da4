"""``pyserve status``: what runs, as a table or as JSON."""

from __future__ import annotations

import dataclasses
import json
import time

import click

from pyserve.cli.settings import settings_for
from pyserve.control.discovery import not_found
from pyserve.driver.session import end_session, find_session
from pyserve.driver.status import DeploymentStatusOverview, MeshStatus, read_status


@click.command(short_help="Show what runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def status(as_json: bool, controller: str | None) -> None:
    """Show the applications, deployments and replicas of the mesh."""
    settings = settings_for(controller)
    session = find_session(settings)
    if session is None:
        raise not_found(
            settings.home,
            "start one with `pyserve run module:app`, or name one with --controller",
        )
    try:
        found = read_status(session.client.status())
    finally:
        end_session()
    click.echo(json.dumps(dataclasses.asdict(found), indent=2) if as_json else as_text(found))


def as_text(found: MeshStatus) -> str:
    """Return the status as lines for people."""
    where = ", ".join(found.addresses) or "no address"
    lines = [f"pyserve {found.version}, process {found.controller_pid}, listening at {where}"]
    lines += [f"notice: {each}" for each in found.notices]
    if counts := found.ingress.counts:
        waiting = f", {found.ingress.parked} of them waiting" if found.ingress.parked else ""
        lines.append(
            f"ingress: {counts['connections']} connections ({counts['connections_refused']} "
            f"refused so far), {found.ingress.in_flight} calls in flight{waiting}"
        )
    for application in found.applications.values():
        prefix = f" ({application.route_prefix})" if application.route_prefix else ""
        since = f" since {_time(application.since_s)}" if application.since_s else ""
        lines.append(f"{application.name}{prefix}  {application.status}{since}")
        for deployment in application.deployments.values():
            lines.extend(_deployment_lines(deployment))
    if not found.applications:
        lines.append("no applications")
    return "\n".join(lines)


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
    lines += [
        f"    {replica.replica_id}  {replica.state}  pid {replica.pid}  {replica.address}".rstrip()
        for replica in deployment.replicas
    ]
    return lines


def _time(unix_s: float) -> str:
    """Return a time as a clock on the wall has it, with the day."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
