"""``pyserve logs``: what the replicas of a deployment write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from pyserve.cli.commands import CommandFailed
from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session
from pyserve.observe.logs.formats import INDENT
from pyserve.observe.logs.requests import shown_id

if TYPE_CHECKING:
    from pyserve.wire.v1 import control_pb2


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
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help="Only what was logged while that request was handled, with its tracebacks.",
)
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def logs(
    deployment: str,
    follow: bool,
    application: str,
    lines_max: int,
    request_id: str | None,
    controller: str | None,
) -> None:
    """Print what the replicas of DEPLOYMENT, or one REPLICA, wrote to standard output and error.

    The mesh keeps the last 1000 lines of a deployment, or 256 KiB, also of replicas that have
    ended, and of those that were not to end the last 40 for an hour; with PYSERVE_LOG_DIR files
    have everything. Replicas in containers of their own write to the log of their engine.
    """
    if request_id and lines_max:
        raise click.UsageError("--lines counts those of all requests; leave it out with --request")
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
        is_empty = True
        for each in of_request(lines, request_id) if request_id else lines:
            is_empty = False
            mark = f"[{each.replica_id}] " if each.replica_id else ""
            click.echo(f"{mark}{each.line}")
        if request_id and is_empty:
            raise CommandFailed(
                f"{deployment} has no line of a request {request_id!r} among those that are kept; "
                f"`pyserve explain {request_id}` says where it went, if it is kept there"
            )
    finally:
        end_session()


def of_request(
    lines: Iterable[control_pb2.LogLine], request_id: str
) -> Iterator[control_pb2.LogLine]:
    """Yield the lines of records that name one request, in text or JSON."""
    in_text = re.compile(rf" \[{re.escape(shown_id(request_id))}(?: trace=\w+)?\]: ")
    in_json = f'"request_id": {json.dumps(request_id)}'
    # Each replica writes the lines of a record one after the other.
    telling: set[str] = set()
    for each in lines:
        if in_text.search(each.line) or in_json in each.line:
            telling.add(each.replica_id)
        elif not each.line.startswith(INDENT):
            telling.discard(each.replica_id)
        if each.replica_id in telling:
            yield each
