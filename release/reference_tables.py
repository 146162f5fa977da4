"""Writes the tables of ``docs/reference`` that say what the code declares.

A table follows a line ``<!-- make gen: NAME -->``; its rows come from the declarations, everything
around it is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pyserve.config import routing
from pyserve.config.declared import Declared, Variable

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_TABLE = re.compile(
    r"^<!-- make gen: (?P<name>[a-z_ ]+) -->\n\n(?P<rows>(?:\|.*\n)*)", re.MULTILINE
)


def table(*rows: Iterable[str]) -> str:
    """Return a table of Markdown; the first row is its head."""
    head, *others = map(list, rows)
    lines = [head, ["---"] * len(head), *others]
    return "".join(
        f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines
    )


def _default(option: Declared) -> str:
    if option.shown:
        return option.shown
    if option.default is None:
        return "none" if option.variable is None else "environment"
    return f'`"{option.default}"`' if isinstance(option.default, str) else str(option.default)


def _router_options() -> Iterator[list[str]]:
    yield ["name", "default", "values", "meaning"]
    for name, option in routing.OPTIONS.items():
        values = "" if option.check is None else str(option.check)
        yield [f"`{name}`", _default(option), values, option.text]


def _router_variables() -> Iterator[list[str]]:
    yield ["variable", "of Ray Serve", "default", "meaning"]
    for each in routing.VARIABLES.values():
        yield [f"`{each.name}`", f"`{each.alias}`", _written(each), each.text]


def _written(variable: Variable) -> str:
    return f"{variable.default:g}"


TABLES: Mapping[str, Callable[[], Iterable[Iterable[str]]]] = {
    "router options": _router_options,
    "router variables": _router_variables,
}


def page(text: str) -> str:
    """Return a page with its tables as the code has them now."""
    return _TABLE.sub(
        lambda found: f"<!-- make gen: {found['name']} -->\n\n{table(*TABLES[found['name']]())}",
        text,
    )


def main() -> None:
    """Write the tables of all pages."""
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
