"""What ``pyserve run`` says when an application serves."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from pyserve.cli.page import page_url
from pyserve.config import read_settings

if TYPE_CHECKING:
    from pyserve.driver.applying import Outcome
    from pyserve.driver.session import Session
    from pyserve.wire.v1 import control_pb2


def print_all_ready(session: Session, request: control_pb2.ApplyRequest, outcome: Outcome) -> None:
    """Say of each application of a file that it serves, if it does, and what has changed."""
    for each in request.applications:
        if each.application in outcome.deployed and each.application not in outcome.unchanged:
            names = {deployment.name for deployment in each.deployments}
            print_ready(
                session, each.application, each.ingress_deployment, names, outcome.addresses
            )
    for name in outcome.deleted:
        click.echo(f"pyserve: application {name!r} is deleted")


def print_ready(
    session: Session,
    name: str,
    ingress: str,
    deployments: Collection[str],
    listening: tuple[str, ...],
) -> None:
    """Say that an application serves, where, and how to try it.

    Args:
        session: Of its mesh.
        name: The application's.
        ingress: The deployment that plain HTTP comes to.
        deployments: Of this version; those that it leaves out may have replicas still.
        listening: Where the ingress listens.
    """
    where = " and ".join(listening) or "no address"
    click.echo(f"pyserve: application {name!r} is ready at {where}")
    reply = session.client.status()
    found = next(item for item in reply.applications if item.name == name)
    # Only a replica knows what a deployment answers.
    present = [each for each in found.deployments if each.wanted]
    has_ingress = any(each.name == ingress for each in present)
    if found.route_prefix and listening and has_ingress:
        scheme = "https" if reply.ingress.speaks_tls else "http"
        click.echo(f"pyserve: plain HTTP at {scheme}://{listening[0]}{found.route_prefix}")
    tls = " --tls" if reply.ingress.speaks_tls else ""
    services = sorted({service for each in present for service in each.services})
    # Every deployment has a service of its own for handles, which has no .proto.
    of_handles = {f"{name}.{each.name}" for each in found.deployments}
    for service in services:
        if service not in of_handles:
            click.echo(
                f"pyserve: serving {service}; try `pyserve call{tls} {service}/METHOD key=value`"
            )
    for each in found.deployments:
        if not each.wanted and each.name in deployments:
            click.echo(
                f"pyserve: {each.name} has no replicas (num_replicas=0), so nothing answers its "
                f"calls until it is deployed with some"
            )


def print_page(session: Session) -> None:
    """Say where methods can be called from a form, unless others have started the mesh."""
    if session.process is None or read_settings().metrics.tries is False:
        return
    # That of the ingress that this run has started.
    shown = [each for each in session.client.status().ingresses if each.admin and each.addresses]
    if shown:
        click.echo(f"pyserve: try it in a browser at {page_url(shown[0])}/#/try")
