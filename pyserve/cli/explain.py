"""``pyserve explain``: where the time of one call went."""

from __future__ import annotations

import json
from urllib.parse import quote

import click

from pyserve.cli.admin import find_admins
from pyserve.cli.commands import CommandFailed
from pyserve.cli.explain_text import as_list, as_text, together
from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session


@click.command(short_help="Say where the time of a call went.")
@click.argument("request_id", metavar="[REQUEST_ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def explain(request_id: str | None, as_json: bool, controller: str | None) -> None:
    """Say where the time of one call went, and why it was routed as it was.

    The first line names the largest cause. Calls are kept that failed, were among the slowest of
    late or sampled, and those that came with the header x-pyserve-explain: 1; of others nothing is
    known, and the exit status is 1. REQUEST_ID is what the answer's header x-request-id says.
    Without one, calls that are kept are listed with their ids.
    """
    session = open_mesh(controller, "start one with `pyserve run module:app`")
    try:
        clients = find_admins(session)
    finally:
        end_session()
    if request_id is None:
        kept = together([client.read("/api/calls.json").data for client in clients])
        click.echo(json.dumps(kept, indent=2) if as_json else as_list(kept))
        return
    refusals = []
    for client in clients:
        found = client.read(f"/api/calls/{quote(request_id, safe='')}")
        if found.is_there:
            click.echo(json.dumps(found.data, indent=2) if as_json else as_text(found.data))
            return
        refusals.append(found.refusal)
    raise CommandFailed(refusals[0])
