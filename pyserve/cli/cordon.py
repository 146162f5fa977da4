"""``pyserve cordon`` and ``uncordon``: take replicas out of rotation, and back."""

from __future__ import annotations

import click

from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session

_TARGET = click.argument("target", metavar="REPLICA|node:NAME")
_CONTROLLER = click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")


@click.command(short_help="Take a replica, or a node, out of rotation.")
@_TARGET
@_CONTROLLER
def cordon(target: str, controller: str | None) -> None:
    """Send no new calls to a replica, or to any replica of a node, and stop none.

    `pyserve status` shows their names.
    """
    _cordon(target, controller, undo=False)


@click.command(short_help="Take a cordoned replica, or node, back.")
@_TARGET
@_CONTROLLER
def uncordon(target: str, controller: str | None) -> None:
    """Send calls again to what was cordoned."""
    _cordon(target, controller, undo=True)


def _cordon(target: str, controller: str | None, *, undo: bool) -> None:
    session = open_mesh(controller, "there is nothing to cordon")
    try:
        reply = session.client.cordon(target, undo=undo)
    finally:
        end_session()
    where = "back in rotation" if undo else "out of rotation"
    for replica in reply.replicas:
        click.echo(f"pyserve: {replica} is {where}")
    if not reply.replicas:
        click.echo(f"pyserve: {target} changes nothing: all that it names is {where} already")
    for warning in reply.warnings:
        click.echo(f"pyserve: warning: {warning}", err=True)
