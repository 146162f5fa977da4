"""``pyserve explain``: where the time of one call went."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any
from urllib.parse import quote

import click

from pyserve.cli.admin import find_admins
from pyserve.cli.commands import CommandFailed
from pyserve.cli.settings import open_mesh
from pyserve.cli.top import duration
from pyserve.driver.session import end_session
from pyserve.observe.metrics.families import code_name


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


# What `pyserve explain` prints: of an explanation, and of the calls that can be explained.

_PARTS_SHOWN = 12
_LISTED = 10
# What the router saw, in this order; the rest of its line comes after it.
_INDENT = "  "


def as_text(found: Mapping[str, Any]) -> str:
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


def as_list(kept: Mapping[str, Any]) -> str:
    """Return the first calls of each kind as lines, with the ids to ask for."""
    lines = []
    for kind, title in _TITLES.items():
        if calls := kept[kind]["calls"]:
            lines.append(f"{title} ({kept[kind]['kept']} kept)")
            lines += [*_indented(_aligned([_listed(each) for each in calls[:_LISTED]])), ""]
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
    yield from _aligned(rows)
    if left_out := parts[_PARTS_SHOWN:]:
        yield f"and {len(left_out)} more, {duration(sum(part['seconds'] for part in left_out))}"


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from _aligned(
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


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _indented(lines: Iterator[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in lines]
