"""What ``pyserve explain`` prints of an explanation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyserve.cli.top_text import duration
from pyserve.observe.metrics.codes import code_name

_PARTS_SHOWN = 12
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


def _cause(found: Mapping[str, Any]) -> str:
    cause = found["cause"]
    whole = duration(found["duration_s"])
    if cause is None:
        return f"it took {whole}, of which nothing is known"
    return f"{duration(cause['seconds'])} of {whole} ({cause['share']:.0%}): {cause['text']}"


def _call(found: Mapping[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["started_at"]))
    to = f" to {found['target']}" if found["target"] else ""
    model = f", model {found['model_id']}" if found["model_id"] else ""
    return (
        f"{found['method']} ({found['door']}){to}{model} at {at}: {_end(found)}, answered by the "
        f"{found['answered_by']}, kept because it {_KEPT[found['kept_for']]}"
    )


_KEPT = {
    "asked": "was asked for",
    "failed": "failed",
    "slow": "was slow",
    "sampled": "was sampled",
}


def _end(found: Mapping[str, Any]) -> str:
    ended = f"HTTP {found['http_status']}" if found["http_status"] else code_name(found["code"])
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
