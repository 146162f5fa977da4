"""The results as two tables of docs/guide/choosing.md, the best of each row in bold. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchmarks.first_hour.systems import SYSTEMS
from benchmarks.machine import ROOT

PAGE = ROOT / "docs" / "guide" / "choosing.md"
_BEGIN, _END = "<!-- first hour: begin -->\n", "<!-- first hour: end -->\n"

# The findings about one system, as they are in the results.
Found = Mapping[str, Any]
# From what to what a figure goes when it is measured again; less is better.
Range = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One thing in which systems differ.

    Attributes:
        label: What it is.
        cell: How it is written.
        rank: Where a system stands; None: there is no better and worse.
    """

    label: str
    cell: Callable[[Found], str]
    rank: Callable[[Found], Range] | None = None


def first_in(row: Row, systems: Mapping[str, Found]) -> list[str]:
    """Return those that are first or equal: no other one is better beyond its spread."""
    if row.rank is None:
        return []
    ranks = {name: row.rank(found) for name, found in systems.items()}
    best = min(high for _, high in ranks.values())
    return [name for name, (low, _) in ranks.items() if low <= best]


def not_first(name: str, systems: Mapping[str, Found]) -> list[str]:
    """Return the labels of the rows in which somebody else is better."""
    there = _available(systems)
    rows = [row for table in TABLES for row in table if row.rank is not None]
    return [row.label for row in rows if name not in first_in(row, there)]


def render(systems: Mapping[str, Found]) -> str:
    """Return both tables as Markdown, and a line for each system that was not to be had."""
    there = _available(systems)
    tables = "\n".join(_table(rows, there) for rows in TABLES)
    missing = [
        f"{system.title}: {systems[system.name]['unavailable']}\n"
        for system in SYSTEMS
        if system.name in systems and system.name not in there
    ]
    return tables + "".join(["\n", *missing] if missing else [])


def with_tables(page: str, systems: Mapping[str, Found]) -> str:
    """Return the page with the tables of these results between its two marks."""
    before, _, rest = page.partition(_BEGIN)
    _, mark, after = rest.partition(_END)
    if not mark:
        raise ValueError(f"the page has no {_BEGIN.strip()} with {_END.strip()} after it")
    return f"{before}{_BEGIN}\n{render(systems)}\n{_END}{after}"


def _available(systems: Mapping[str, Found]) -> dict[str, Found]:
    """Return those that were measured, in the order of the columns."""
    names = [system.name for system in SYSTEMS if system.name in systems]
    return {name: systems[name] for name in names if "unavailable" not in systems[name]}


def _table(rows: Sequence[Row], systems: Mapping[str, Found]) -> str:
    titles = {system.name: system.title for system in SYSTEMS}
    lines = [["", *(titles[name] for name in systems)], ["---"] * (len(systems) + 1)]
    for row in rows:
        first = first_in(row, systems)
        cells = {name: row.cell(found) for name, found in systems.items()}
        marked = [f"**{cell}**" if name in first else cell for name, cell in cells.items()]
        lines.append([row.label, *marked])
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


# --- cells and ranks ------------------------------------------------------------------------


def _exactly(value: float) -> Range:
    return value, value


def _spread(spread: Mapping[str, float] | None) -> Range:
    if spread is None:
        return _exactly(math.inf)
    return spread["lower_quartile"], spread["upper_quartile"]


def _seconds(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "no reload"
    return f"{spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})"


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _of_reload(key: str) -> Callable[[Found], Mapping[str, float] | None]:
    return lambda found: found["reload"][key] if found["reload"] else None


def _page(found: Found) -> str:
    place = urlsplit(found["page"]["place"])
    view = f"#{place.fragment.partition('?')[0]}" if place.fragment else ""
    return f"`{place.path}{view}`" if found["page"]["place"] else "none"


def _loaded(found: Found) -> str:
    hosts = sorted({urlsplit(each).netloc for each in found["page"]["external"]})
    return ", ".join(hosts) if hosts else "nothing" if found["page"]["place"] else "no page"


def _loads_from_elsewhere(found: Found) -> Range:
    return _exactly(not found["page"]["place"] or bool(found["page"]["external"]))


def _argument(found: Found) -> str:
    types = found["types"]
    return _yes(types["argument"]) if types["has_caller"] else "has no client or handle"


def _timed(label: str, of: Callable[[Found], Mapping[str, float] | None]) -> Row:
    return Row(label, lambda found: _seconds(of(found)), lambda found: _spread(of(found)))


def _counted(label: str, of: Callable[[Found], int]) -> Row:
    return Row(label, lambda found: str(of(found)), lambda found: _exactly(of(found)))


def _asked(label: str, of: Callable[[Found], object]) -> Row:
    return Row(label, lambda found: _yes(of(found)), lambda found: _exactly(not of(found)))


_FIRST_HOUR = (
    Row("version", lambda found: str(found["version"])),
    Row(
        "lines of the service, without imports and with them",
        lambda found: f"{found['lines']['without_imports']}, {found['lines']['all']}",
        lambda found: _exactly(found["lines"]["without_imports"]),
    ),
    _counted("packages installed", lambda found: found["packages"]),
    _counted("their size, MB", lambda found: round(found["bytes"] / 1e6)),
    _timed("seconds to the first answer", lambda found: found["first_answer_s"]),
    _counted("lines in the terminal before the first call", lambda f: len(f["terminal"]["shown"])),
    _asked("the address is among them", lambda found: found["terminal"]["address"]),
    _asked("a call shows", lambda found: found["terminal"]["shown_then"]),
    Row("page to try it", _page, lambda found: _exactly(not found["page"]["place"])),
    Row("what that page loads from other hosts", _loaded, _loads_from_elsewhere),
    _asked("its address is in the terminal", lambda found: found["page"]["shown"]),
    _timed("seconds from a saved edit to its answer", _of_reload("seconds")),
    _timed("longest time without an answer meanwhile", _of_reload("gap_s")),
    Row(
        "`mypy --strict` finds an argument of another type",
        _argument,
        lambda found: _exactly(not found["types"]["argument"]),
    ),
    _asked("it finds a misspelt option", lambda found: found["types"]["option"]),
    _counted("errors that it finds where none is", lambda f: len(f["types"]["false_errors"])),
)

# The parts of a good answer to each mistake, by the names of the marks.
_MISTAKES = {
    "port": (
        "the port is taken",
        {
            "ends": "the command ends with an error",
            "port": "it names the port",
            "remedy": "it says how to choose another",
        },
    ),
    "constructor": (
        "the constructor raises",
        {
            "ends": "the command ends with an error",
            "cause": "it says what was raised",
            "place": "it says in which line",
        },
    ),
    "option": (
        "an option is misspelt",
        {
            "ends": "the command ends with an error",
            "name": "it names the option",
            "place": "it says in which line",
            "remedy": "it says how it is spelt",
        },
    ),
    "handler": (
        "the handler raises",
        {
            "status": "the answer is a 5xx",
            "cause": "the terminal says what was raised",
            "place": "it says in which line",
            "serves": "the next call is answered",
        },
    ),
    "input": (
        "a field has another type, or a misspelt name",
        {
            "status": "the answer is a 4xx",
            "field": "it names the field",
            "type": "it says which type",
            "missing": "it names the field that is missing",
            "unknown": "it names the one that is not known",
        },
    ),
}


def _mistake(name: str) -> Row:
    title, meanings = _MISTAKES[name]

    def count(found: Found) -> int:
        return sum(found["mistakes"][name]["marks"].values())

    def cell(found: Found) -> str:
        verdict = found["mistakes"][name]
        seconds = "" if verdict["seconds"] is None else f" after {verdict['seconds']:.1f} s"
        lines = "1 line" if verdict["lines"] == 1 else f"{verdict['lines']} lines"
        missing = [meanings[each] for each, met in verdict["marks"].items() if not met]
        without = f"; not: {', '.join(missing)}" if missing else ""
        return (
            f"{count(found)} of {len(meanings)}{without} ({verdict['happened']}{seconds}, {lines})"
        )

    label = f"{title}: {', '.join(meanings.values())}"
    return Row(label, cell, lambda found: _exactly(-count(found)))


TABLES = (_FIRST_HOUR, tuple(_mistake(name) for name in _MISTAKES))
