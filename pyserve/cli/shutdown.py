"""``pyserve shutdown``: drains and ends the mesh."""

from __future__ import annotations

import click

from pyserve.cli.settings import Seconds, open_mesh
from pyserve.config.control import SHUTDOWN_GRACE_S
from pyserve.driver.session import end_session


@click.command(short_help="Drain and end the mesh.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
@click.option(
    "--grace",
    "grace_s",
    type=Seconds(),
    default=SHUTDOWN_GRACE_S,
    show_default=True,
    help="Seconds that calls in flight may take.",
)
@click.option(
    "-y", "--yes", is_flag=True, expose_value=False, help="As in Ray Serve; nobody is asked here."
)
def shutdown(controller: str | None, grace_s: float) -> None:
    """Let calls in flight finish, then end every process of the mesh."""
    session = open_mesh(controller, "there is nothing to shut down")
    try:
        session.shutdown(grace_s)
    finally:
        end_session()
    click.echo("pyserve: the mesh has ended")
