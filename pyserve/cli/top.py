"""``pyserve top``: the activity of the mesh, as a table that is redrawn, or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from pyserve.cli.admin import AdminClient, find_admins
from pyserve.cli.commands import CommandFailed, print_error
from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session

if TYPE_CHECKING:
    from rich.console import RenderableType


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


_HEAD = ("", "state", "in flight", "waiting", "calls/s", "errors", "p50", "p99", "")
# Texts stand to the left, numbers to the right.
_LEFT = frozenset({0, 1, len(_HEAD) - 1})
_EVENTS_SHOWN = 5
_FINE = frozenset({"HEALTHY", "RUNNING"})
_BAD = frozenset({"UNHEALTHY", "DEPLOY_FAILED", "SILENT"})
_MILLI, _MICRO = 1e-3, 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        cells: As many as there are columns.
        style: Of rich; "": none.
    """

    cells: tuple[str, ...]
    style: str = ""


def as_text(overview: Mapping[str, Any]) -> str:
    """Return an overview as lines for people, without a terminal."""
    rows = [_HEAD, *(row.cells for row in rows_of(overview))]
    return "\n".join([*head_lines(overview), "", *_aligned(rows), *event_lines(overview)])


def as_table(overview: Mapping[str, Any]) -> RenderableType:
    """Return an overview for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(_HEAD):
        is_note = number == len(_HEAD) - 1
        table.add_column(
            name,
            justify="left" if number in _LEFT else "right",
            no_wrap=not is_note,
            overflow="fold" if is_note else "ellipsis",
        )
    for row in rows_of(overview):
        table.add_row(*map(Text, row.cells), style=row.style or None)
    above, below = "\n".join(head_lines(overview)), "\n".join(event_lines(overview))
    return Group(Text(f"{above}\n"), table, Text(below, style="dim"))


def head_lines(overview: Mapping[str, Any]) -> list[str]:
    """Return what is said of the mesh as a whole."""
    replicas = sum(each["running"] for each in overview["deployments"])
    lines = [
        f"pyserve {overview['version']}, process {overview['controller_pid']}: "
        f"{_counted(len(overview['applications']), 'application')}, "
        f"{_counted(len(overview['deployments']), 'deployment')}, "
        f"{_counted(replicas, 'replica')}; rates over {overview['interval_s']:.1f} s"
    ]
    lines += [
        f"ingress on {each['node']}  {each['state']}  {', '.join(each['addresses'])}  "
        f"{_counted(each['connections'], 'connection')}, {each['in_flight']} in flight, "
        f"{each['parked']} waiting"
        for each in overview["ingresses"]
    ]
    return lines + [f"notice: {each}" for each in overview["notices"]]


def rows_of(overview: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row for each deployment, those with the most load first, and for its replicas."""
    for deployment in overview["deployments"]:
        running = f"{deployment['state']} {deployment['running']}/{deployment['wanted']}"
        yield Row(
            (
                deployment["target"],
                running,
                str(deployment["in_flight"]),
                str(deployment["parked"]),
                *_measures(deployment, "p50_s"),
                _note(deployment),
            ),
            "bold" if deployment["state"] in _FINE else _style(deployment["state"]),
        )
        for replica in deployment["replicas"]:
            yield _replica_row(replica)
        if left_out := deployment["replicas_left_out"]:
            yield Row((f"  and {left_out} more", *[""] * (len(_HEAD) - 1)), "dim")


def _replica_row(replica: Mapping[str, Any]) -> Row:
    outlier = f"outlier: {replica['odd']}" if replica["odd"] else ""
    cells = (
        f"  {replica['id']}",
        replica["state"],
        str(replica["in_flight"]),
        "",
        *_measures(replica, "p50_s"),
        outlier or ", ".join(replica["models"]),
    )
    return Row(cells, "yellow" if outlier else _style(replica["state"]))


def event_lines(overview: Mapping[str, Any]) -> list[str]:
    """Return what has happened last."""
    events = overview["events"][:_EVENTS_SHOWN]
    lines = [f"{_clock(each['at'])}  {each['where']}  {each['text']}" for each in events]
    return ["", *lines] if lines else []


def duration(value: float | None) -> str:
    """Return a time with its unit, in three digits; "-" of none."""
    if value is None:
        return "-"
    if value >= 1:
        return f"{value:.3g} s"
    if value >= _MILLI:
        return f"{value / _MILLI:.3g} ms"
    return f"{value / _MICRO:.3g} µs"


def _measures(found: Mapping[str, Any], middle: str) -> tuple[str, ...]:
    share = found["error_share"]
    return (
        f"{found['calls_per_second']:g}",
        "-" if share is None else f"{share:.1%}",
        duration(found[middle]),
        duration(found["p99_s"]),
    )


def _note(deployment: Mapping[str, Any]) -> str:
    scaling = deployment["scaling"]
    if deployment["state"] not in _FINE and deployment["reason"]:
        return str(deployment["reason"])
    if scaling is None:
        return ""
    wants = "would have" if scaling["is_advisory"] else "scales to"
    return f"{wants} {scaling['target']}: {scaling['reason']}"


def _style(state: str) -> str:
    return "" if state in _FINE else "red" if state in _BAD else "yellow"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = [
            cell.ljust(widths[column]) if column in _LEFT else cell.rjust(widths[column])
            for column, cell in enumerate(row)
        ]
        yield "  ".join(cells).rstrip()
