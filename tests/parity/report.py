"""Judges the rows by what their tests did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.parity.table import Row

Outcome = Literal["passed", "failed", "skipped"]
Verdict = Literal["ok", "FAILED", "MISSING", "SKIPPED", "EMPTY", "open", "left out"]

_BAD = frozenset({"FAILED", "MISSING", "SKIPPED", "EMPTY"})


@dataclass(slots=True)
class ShownBy:
    """One marked test function; a parametrised one has several outcomes.

    Attributes:
        test: ``path::name``, without parameters.
        rows: What its marks name.
        can_fail: Whether it asserts anything.
        outcomes: Empty when it did not run.
    """

    test: str
    rows: frozenset[str]
    can_fail: bool
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """What this test alone would make of a row that is built."""
        if "failed" in self.outcomes:
            return "FAILED"
        if not self.can_fail:
            return "EMPTY"
        return "ok" if "passed" in self.outcomes else "SKIPPED"


@dataclass(frozen=True, slots=True)
class Line:
    """One printed row."""

    row: Row
    verdict: Verdict
    tests: tuple[str, ...]

    @property
    def is_bad(self) -> bool:
        return self.verdict in _BAD


def judge(rows: Mapping[str, Row], tests: Iterable[ShownBy]) -> list[Line]:
    """Return a line for each row, in the order of the page."""
    of_row: dict[str, list[ShownBy]] = {}
    for test in tests:
        for name in test.rows:
            of_row.setdefault(name, []).append(test)
    return [_line(row, of_row.get(row.name, [])) for row in rows.values()]


def _line(row: Row, tests: Sequence[ShownBy]) -> Line:
    names = tuple(sorted(test.test for test in tests))
    if row.left_out:
        return Line(row, "left out", names)
    if not row.is_built:
        return Line(row, "open", names)
    if not tests:
        return Line(row, "MISSING", names)
    # One test that passed and can fail shows the row; one that failed says that it is broken.
    verdicts = {test.verdict for test in tests}
    found: Verdict = next(verdict for verdict in _BY_WEIGHT if verdict in verdicts)
    return Line(row, found, names)


_BY_WEIGHT: tuple[Verdict, ...] = ("FAILED", "ok", "SKIPPED", "EMPTY")


def unknown_rows(rows: Mapping[str, Row], tests: Iterable[ShownBy]) -> list[str]:
    """Return a sentence for each mark that names a row which the page does not have.

    Marks with a T name traps, where guides contradict each other; the table has no rows for them.
    """
    return [
        f"{test.test} is marked {name}, which docs/parity.md does not have"
        for test in tests
        for name in sorted(test.rows - rows.keys())
        if not name.startswith("T")
    ]


def render(lines: Sequence[Line]) -> str:
    """Return the table as text."""
    printed: list[str] = []
    area = ""
    for line in lines:
        if line.row.area != area:
            area = line.row.area
            printed += ["", area]
        printed.append(f"  {line.row.name}  {line.verdict:<8}  {line.row.text}")
        if line.row.left_out:
            printed.append(f"{'':>18}because: {line.row.left_out}")
        printed += [f"{'':>18}{test}" for test in line.tests]
    return "\n".join([*printed, "", _summary(lines)]).lstrip("\n")


def _summary(lines: Sequence[Line]) -> str:
    built = [line for line in lines if line.row.is_built]
    bad = [line.row.name for line in lines if line.is_bad]
    good = sum(line.verdict == "ok" for line in built)
    left_out = sum(line.verdict == "left out" for line in lines)
    text = f"{good} of {len(built)} rows of built areas work"
    text += f", {left_out} left out, {sum(line.verdict == 'open' for line in lines)} open"
    return f"{text}; not: {' '.join(bad)}" if bad else text
