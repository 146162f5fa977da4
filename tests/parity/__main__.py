"""``make parity``: runs the tests of the rows that are built, and prints the table.

Exit code: 0; 1 when a row of a built area does not work; 2 when the page or a mark is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import pytest

from tests.parity.collector import ROOT, Collector
from tests.parity.report import judge, render, unknown_rows
from tests.parity.table import Row, TableError, read_table

# A file that cannot be imported costs its own rows only.
_PYTEST = ("-q", "-p", "no:cacheprovider", "--continue-on-collection-errors")
_COLLECTED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def main(arguments: list[str] | None = None) -> int:
    """Print the table and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        rows = read_table((ROOT / "docs/parity.md").read_text(encoding="utf-8"))
    except TableError as error:
        print(f"docs/parity.md: {error}", file=sys.stderr)
        return 2
    chosen = _chosen(rows, options.rows)
    wanted = [row.name for row in chosen.values() if row.is_built and not row.left_out]
    collector = Collector(wanted)
    status = pytest.main([*_PYTEST, str(ROOT / "tests")], [collector])
    problems = unknown_rows(rows, collector.tests.values())
    if status not in _COLLECTED:
        problems.append("the tests could not be collected; pytest says above why")
    lines = judge(chosen, collector.tests.values())
    print(f"\n{render(lines)}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 2 if problems else int(any(line.is_bad for line in lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("rows", nargs="*", help="only these rows, e.g. S-17; by default all")
    return parser


def _chosen(rows: Mapping[str, Row], names: list[str]) -> dict[str, Row]:
    unknown = [name for name in names if name not in rows]
    if unknown:
        print(f"docs/parity.md has no {' '.join(unknown)}", file=sys.stderr)
        raise SystemExit(2)
    return {name: row for name, row in rows.items() if not names or name in names}


if __name__ == "__main__":
    sys.exit(main())
