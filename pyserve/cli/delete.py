"""``pyserve delete``: drains and ends one application."""

from __future__ import annotations

import click

from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session
from pyserve.types import ApplicationName


@click.command(short_help="Drain and end an application.")
@click.argument("application")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def delete(application: str, yes: bool, controller: str | None) -> None:
    """Let the calls of an application finish, then end its replicas.

    The next `pyserve deploy` of a file that has it brings it back.
    """
    session = open_mesh(controller, "there is nothing to delete")
    try:
        if not yes:
            click.confirm(f"Delete the application {application!r}?", abort=True, err=True)
        session.client.delete(ApplicationName(application))
    finally:
        end_session()
    click.echo(f"pyserve: application {application!r} is deleted")
