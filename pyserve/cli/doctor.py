"""``pyserve doctor``: what is wrong with a mesh and its machine, and what to do."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

import click

from pyserve.cli.settings import settings_for
from pyserve.driver.doctor import examine
from pyserve.driver.doctor_mesh import Finding, State

_WIDTH = max(map(len, State))


@click.command(short_help="Look for what is wrong, and say what to do.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def doctor(as_json: bool, controller: str | None) -> None:
    """Look at this machine, the files of the mesh and each of its processes.

    Nothing is changed. It exits with 1 if something is wrong; each finding that is not fine has
    its remedy below it.
    """
    found = list(examine(settings_for(controller)))
    is_wrong = any(each.state is State.WRONG for each in found)
    if as_json:
        findings = [dataclasses.asdict(each) for each in found]
        click.echo(json.dumps({"ok": not is_wrong, "findings": findings}, indent=2))
    else:
        click.echo(as_text(found))
    sys.exit(1 if is_wrong else 0)


def as_text(found: Sequence[Finding]) -> str:
    """Return the findings as lines for people; what is wrong comes last, where it is seen."""
    order = [State.OK, State.NOTICE, State.WRONG]
    lines = []
    for each in sorted(found, key=lambda finding: order.index(finding.state)):
        word = each.state.upper() if each.state is State.WRONG else each.state
        lines.append(f"{word:<{_WIDTH}}  {each.subject}: {each.text}")
        if each.remedy:
            lines.append(f"{'':<{_WIDTH}}  -> {each.remedy}")
    count = sum(each.state is State.WRONG for each in found)
    lines.append(f"{count} of {len(found)} findings are wrong" if count else "nothing is wrong")
    return "\n".join(lines)
