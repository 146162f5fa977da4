"""``pyserve top``: the activity of the mesh, as a table that is redrawn, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from pyserve.cli.admin import AdminClient, find_admins
from pyserve.cli.commands import CommandFailed, print_error
from pyserve.cli.settings import open_mesh
from pyserve.cli.top_text import as_table, as_text
from pyserve.driver.session import end_session

_OVERVIEW = "/api/overview.json"
_EVENTS = "/api/events"


@click.command(short_help="Show what the mesh does now.")
@click.option("--once", is_flag=True, help="Look once, for a second, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each look.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def top(once: bool, as_json: bool, controller: str | None) -> None:
    """Show deployments and replicas with their calls, errors and times, until Ctrl-C.

    Those with the most load come first; a replica that differs from its siblings is marked. Without
    a terminal, each look is printed below the one before.
    """
    session = open_mesh(controller, "start one with `pyserve run module:app`")
    try:
        client = find_admins(session)[0]
    finally:
        end_session()
    if once:
        look = client.read(_OVERVIEW)
        if not look.is_there:
            raise CommandFailed(f"{_OVERVIEW}: {look.refusal}")
        click.echo(json.dumps(look.data, indent=2) if as_json else as_text(look.data))
    elif as_json:
        for found in _overviews(client):
            click.echo(json.dumps(found))
    elif not sys.stdout.isatty():
        for found in _overviews(client):
            click.echo(f"{as_text(found)}\n")
    else:
        _draw(client)


def _draw(client: AdminClient) -> None:
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:
        for found in _overviews(client):
            live.update(as_table(found), refresh=True)


def _overviews(client: AdminClient) -> Iterator[dict[str, Any]]:
    """Yield what comes, and say what keeps it from coming."""
    for name, data in client.follow(_EVENTS):
        if name == "overview":
            yield data
        else:
            print_error(str(data), "")
    raise CommandFailed("the admin server has ended")
