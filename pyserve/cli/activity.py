"""What a mesh does: ``pyserve top``, a table that is redrawn or JSON, and ``pyserve explain``.

``explain`` says where the time of one call went.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from pyserve.cli.admin import AdminClient, find_admins
from pyserve.cli.commands import CommandFailed, print_error
from pyserve.cli.settings import open_mesh
from pyserve.driver.session import end_session
from pyserve.observe.metrics.families import code_name

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


@click.command(short_help="Say where the time of a call went.")
@click.argument("request_id", metavar="[REQUEST_ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--controller", metavar="HOST:PORT", help="The mesh of that controller.")
def explain(request_id: str | None, as_json: bool, controller: str | None) -> None:
    """Say where the time of one call went, and why it was routed as it was.

    The first line names the largest cause. Calls are kept that failed, were among the slowest of
    late or sampled, and those that came with the header x-pyserve-explain: 1; of others nothing is
    known, and the exit status is 1. REQUEST_ID is what the answer's header x-request-id says, or
    x-pyserve-request-id where it has both.
    Without one, calls that are kept are listed with their ids.
    """
    session = open_mesh(controller, "start one with `pyserve run module:app`")
    try:
        clients = find_admins(session)
    finally:
        end_session()
    if request_id is None:
        kept = together([client.read("/api/calls.json").data for client in clients])
        click.echo(json.dumps(kept, indent=2) if as_json else listed(kept))
        return
    refusals = []
    for client in clients:
        found = client.read(f"/api/calls/{quote(request_id, safe='')}")
        if found.is_there:
            click.echo(json.dumps(found.data, indent=2) if as_json else explained(found.data))
            return
        refusals.append(found.refusal)
    raise CommandFailed(refusals[0])


# What `pyserve explain` prints: of an explanation, and of the calls that can be explained.

_PARTS_SHOWN = 12
_LISTED = 10
# What the router saw, in this order; the rest of its line comes after it.
_INDENT = "  "


def explained(found: Mapping[str, Any]) -> str:
    """Return an explanation as lines; the first one names the largest cause."""
    lines = [_cause(found), _call(found), "", "where the time went"]
    lines += _indented(_parts(found))
    if found["attempts"]:
        lines += ["", "attempts", *_indented(_attempts(found["attempts"]))]
    if found["routing"] is not None:
        lines += ["", "what the router saw", *_indented(_routing(found["routing"]))]
    if found["silent"]:
        lines += ["", "not known, since these did not answer"]
        lines += _indented(f"{name}: {why}" for name, why in found["silent"].items())
    if others := found.get("others_of_this_id"):
        lines += ["", f"{others} earlier calls of this id are kept; this is the newest"]
    return "\n".join(lines)


def together(kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what several ingresses have kept as one would, in the order that each has."""
    found: dict[str, Any] = {}
    for kind in _TITLES:
        order = "duration_s" if kind == "slow" else "started_at"
        listed = [call for each in kept for call in each[kind]["calls"]]
        # Without an id, as this command's own questions to replicas are, nobody can ask for it.
        calls = [call for call in listed if call["request_id"]]
        found[kind] = {
            "kept": sum(each[kind]["kept"] for each in kept) - (len(listed) - len(calls)),
            "calls": sorted(calls, key=itemgetter(order), reverse=True),
        }
    return found


def listed(kept: Mapping[str, Any]) -> str:
    """Return the first calls of each kind as lines, with the ids to ask for."""
    lines = []
    for kind, title in _TITLES.items():
        if calls := kept[kind]["calls"]:
            lines.append(f"{title} ({kept[kind]['kept']} kept)")
            lines += [*_indented(_in_columns([_listed(each) for each in calls[:_LISTED]])), ""]
    if not lines:
        return "no call is kept so far: none has failed, was slow, sampled or asked for"
    return "\n".join([*lines, "`pyserve explain REQUEST_ID` says where the time of one went"])


_TITLES = {
    "failed": "failed, the newest first",
    "slow": "the slowest of late",
    "asked": "asked for, the newest first",
    "sampled": "sampled, the newest first",
}


def _listed(call: Mapping[str, Any]) -> tuple[str, ...]:
    request_id = call["request_id"]
    to = f" to {call['target']}" if call["target"] else ""
    return (
        # Clients choose ids; a terminal is not to obey one.
        request_id if request_id.isprintable() else ascii(request_id),
        _time(call),
        duration(call["duration_s"]),
        _end(call),
        f"{call['method']}{to}",
    )


def _time(call: Mapping[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(call["started_at"]))


def _cause(found: Mapping[str, Any]) -> str:
    cause = found["cause"]
    whole = duration(found["duration_s"])
    if cause is None:
        return f"it took {whole}, of which nothing is known"
    return f"{duration(cause['seconds'])} of {whole} ({cause['share']:.0%}): {cause['text']}"


def _call(found: Mapping[str, Any]) -> str:
    to = f" to {found['target']}" if found["target"] else ""
    model = f", model {found['model_id']}" if found["model_id"] else ""
    return (
        f"{found['method']} ({found['door']}){to}{model} at {_time(found)}: {_end(found)}, "
        f"answered by the {found['answered_by']}, kept because it {_KEPT[found['kept_for']]}"
    )


_KEPT = {
    "asked": "was asked for",
    "failed": "failed",
    "slow": "was slow",
    "sampled": "was sampled",
}


def _end(found: Mapping[str, Any]) -> str:
    ended = f"HTTP {found['http_status']}" if found["http_status"] else code_name(found["code"])
    if reason := found["reason"]:
        # It may have names from an answer.
        return f"{ended} ({reason if reason.isprintable() else ascii(reason)})"
    return f"{ended}, refused ({found['refused']})" if found["refused"] else ended


def _parts(found: Mapping[str, Any]) -> Iterator[str]:
    parts = found["parts"]
    rows = [
        (duration(part["seconds"]), f"{part['share']:.0%}", part["text"])
        for part in parts[:_PARTS_SHOWN]
    ]
    yield from _in_columns(rows)
    if left_out := parts[_PARTS_SHOWN:]:
        yield f"and {len(left_out)} more, {duration(sum(part['seconds'] for part in left_out))}"


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from _in_columns(
        [
            (
                str(number),
                f"{each['replica']} at {each['node']}" if each["node"] else each["replica"],
                each["why"],
                f"after {duration(each['start_s'])}",
                f"took {duration(each['duration_s'])}",
                each["outcome"],
            )
            for number, each in enumerate(attempts, 1)
        ]
    )


def _routing(routing: object) -> Iterator[str]:
    if not isinstance(routing, Mapping):
        yield str(routing)
        return
    for name, value in routing.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield f"{name}:"
            yield from _indented(map(_pairs, value))
        else:
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value)}"


def _pairs(found: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in found.items()
    )


def _in_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _indented(lines: Iterator[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in lines]
