"""The rows of docs/parity.md. Decides what the page says; knows nothing of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_AREA = re.compile(r"## (?P<name>.+) \((?P<state>built|open)\)")
_ROW = re.compile(r"\| (?P<row>[SG]-\d\d) \| (?P<text>.+) \|")
_LEFT_OUT = "## Left out"


class TableError(ValueError):
    """The page contradicts itself."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; ``left_out`` is the reason why it will not work, or empty."""

    name: str
    text: str
    area: str
    is_built: bool
    left_out: str = ""


def read_table(page: str) -> Mapping[str, Row]:
    """Return the rows of the page in its order, by name.

    Raises:
        TableError: A row stands twice or in no area, or is left out though it must not be.
    """
    rows: dict[str, Row] = {}
    reasons: dict[str, str] = {}
    area: tuple[str, bool] | None = None
    for line in page.splitlines():
        if line.startswith("## "):
            found = _AREA.fullmatch(line)
            area = (found["name"], found["state"] == "built") if found else None
            if found is None and line != _LEFT_OUT:
                raise TableError(f"{line!r}: write '## <area> (built)', '(open)' or {_LEFT_OUT!r}")
        elif found := _ROW.fullmatch(line):
            target = rows if area else reasons
            if found["row"] in target:
                raise TableError(f"{found['row']} stands twice")
            if area:
                rows[found["row"]] = Row(found["row"], found["text"], *area)
            else:
                reasons[found["row"]] = found["text"]
    return _without_left_out(rows, reasons)


def _without_left_out(rows: dict[str, Row], reasons: dict[str, str]) -> dict[str, Row]:
    for name, reason in reasons.items():
        if name not in rows:
            raise TableError(f"{name} is left out of an area that has it not; name it there too")
        if name.startswith("S"):
            raise TableError(f"{name} cannot be left out: every row with an S has to work")
        row = rows[name]
        rows[name] = Row(name, row.text, row.area, row.is_built, reason)
    return rows
