"""``pyserve logs``: what the replicas of a deployment write."""

from __future__ import annotations

import click

from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session


@click.command(short_help="Print what the replicas of a deployment write.")
@click.argument("deployment", metavar="DEPLOYMENT|REPLICA")
@click.option("-f", "--follow", is_flag=True, help="Go on with what they write, until Ctrl-C.")
@click.option("--application", default="", help="Where several have a deployment of that name.")
@click.option(
    "-n",
    "--lines",
    "lines_max",
    type=click.IntRange(min=0),
    default=0,
    help="Only so many of the last lines. [default: all that are kept]",
)
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def logs(
    deployment: str, follow: bool, application: str, lines_max: int, controller: str | None
) -> None:
    """Print what the replicas of DEPLOYMENT, or one REPLICA, wrote to standard output and error.

    The mesh keeps the last 1000 lines of a deployment, or 256 KiB, also of replicas that have
    ended, and of those that were not to end the last 40 for an hour; with PYSERVE_LOG_DIR files
    have everything. Replicas in containers of their own write to the log of their engine.
    """
    session = open_mesh(controller, "there are no logs")
    try:
        name, of_replica, _ = deployment.partition("#")
        lines = session.client.logs(
            application,
            name,
            lines_max=lines_max,
            follow=follow,
            replica_id=deployment if of_replica else "",
        )
        for each in lines:
            mark = f"[{each.replica_id}] " if each.replica_id else ""
            click.echo(f"{mark}{each.line}")
    finally:
        end_session()
