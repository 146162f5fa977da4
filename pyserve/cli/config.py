"""``pyserve config``: what the files said that were deployed last."""

from __future__ import annotations

import difflib
import json

import click

from pyserve.cli.commands import CommandFailed
from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session


@click.command(short_help="Print what was deployed from files.")
@click.option("--name", help="Of one application. [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def config(name: str | None, as_json: bool, controller: str | None) -> None:
    """Print, as a file that `pyserve deploy` takes, what was deployed from files.

    Applications of `pyserve run MODULE:ATTRIBUTE` and of programs came from none.
    """
    session = open_mesh(controller, "start one with `pyserve start`, or name one by --controller")
    try:
        reply = session.client.config()
    finally:
        end_session()
    declared = {each.application: json.loads(each.json) for each in reply.declarations}
    if name is not None:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(declared)}"
            hint = hint if declared else "none was deployed from a file"
            raise CommandFailed(f"no application {name!r} was deployed from a file; {hint}")
        declared = {name: declared[name]}
    content: dict[str, object] = {"applications": list(declared.values())}
    if reply.HasField("target_capacity"):
        content["target_capacity"] = reply.target_capacity
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    from pyserve.config.files import dump

    click.echo(dump(content), nl=False)
