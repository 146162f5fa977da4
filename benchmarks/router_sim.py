"""The router against a central queue and the rule of the seeds, in simulated time.

The simulator is that of the tests of ``router-core``; this prints its tables and keeps its figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cargo_bench import bench_rows
from benchmarks.machine import stamp

RESULTS = Path(__file__).parent / "results" / "router.json"


def simulate(seeds: int, only: str) -> Iterator[dict[str, Any]]:
    """Play the scenarios with ``only`` in their names, and yield the figures of each."""
    return bench_rows("pyserve-router-core", "sim", "--seeds", str(seeds), "--only", only)


def table(scenario: dict[str, Any]) -> str:
    """Lay out one scenario: a line for each rule, then what the bar says of each policy."""
    rows = scenario["rules"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[_title(name) for name in columns]]
    lines += [[_cell(row.get(name, "")) for name in columns] for row in rows]
    figures = list(dict.fromkeys(bar["figure"] for bar in scenario["bars"]))
    verdicts = [["bar", "asks", *dict.fromkeys(bar["rule"] for bar in scenario["bars"])]]
    for figure in figures:
        bars = [bar for bar in scenario["bars"] if bar["figure"] == figure]
        verdicts.append([figure, _asked(bars[0]), *(_verdict(bar) for bar in bars)])
    title = f"{scenario['scenario']}, median of {scenario['seeds']} seeds"
    return "\n\n".join([title, _aligned(lines), _aligned(verdicts), ""])


def _title(column: str) -> str:
    return column.removesuffix("_percent").replace("_", " ") + (
        " %" if column.endswith("_percent") else ""
    )


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _asked(bar: dict[str, Any]) -> str:
    return f"≤ {bar['at_most']:g}" if "at_most" in bar else f"≥ {bar['at_least']:g}"


def _verdict(bar: dict[str, Any]) -> str:
    return f"{bar['median']:.3g}" + ("" if bar["holds"] else " no")


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def main() -> None:
    """Play, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="seeds 1 to this one")
    parser.add_argument("--only", default="", help="scenarios with this in their names")
    parser.add_argument("--output", type=Path, help="where to keep the figures of a whole run")
    options = parser.parse_args()
    scenarios = []
    for scenario in simulate(options.seeds, options.only):
        print(table(scenario), flush=True)
        scenarios.append(scenario)
    output = options.output or (None if options.only else RESULTS)
    if output:
        text = json.dumps({"machine": stamp(), "scenarios": scenarios}, indent=2)
        output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
