"""``make bench``: pyserve against plain grpc.aio on uvloop, in alternating pairs.

README.md beside this file says how it measures and how to read the results.
Exit code: 0 when every answer was right, whatever the figures; 1 when one was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import chart
from benchmarks.comparison import Comparison, Pair, compare
from benchmarks.generator import find_generator
from benchmarks.machine import ROOT, stamp
from benchmarks.measure import Duration, Run, measure
from benchmarks.processes import CpuSets, RunningServer, affinity, running_server
from benchmarks.workloads import WORKLOADS, Workload

BASELINE = "grpc.aio"
_OURS = ("pyserve", "pyserve.aio", "grpc.aio")
_PAIRS = 10  # The design asks for at least ten.
_SECONDS = 3.0
# Caches, connections and the interpreter's specialisation settle within tenths of a second.
_WARMUP_S = 1.0


@dataclass(frozen=True)
class Settings:
    """The options of the command line.

    Attributes:
        ours: The contestant that is compared with the baseline.
        pairs: Pairs of each workload.
        duration: Length of each run.
        workloads: What to run.
        is_pinned: Whether servers and generator have a CPU of their own each.
        output: Folder of the results.
    """

    ours: str
    pairs: int
    duration: Duration
    workloads: tuple[Workload, ...]
    is_pinned: bool
    output: Path

    @property
    def results(self) -> Path:
        """The file of the results; ``bench.json`` has its chart beside it."""
        return self.output / ("bench.json" if self.is_pinned else "unpinned.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the results, and return the exit code."""
    settings = _settings(arguments)
    cpus = CpuSets.here(is_pinned=settings.is_pinned)
    console = Console(width=None if sys.stdout.isatty() else 130)
    begun = stamp()
    with affinity(cpus.generator):
        comparisons = [
            _compare(workload, settings, cpus, console) for workload in settings.workloads
        ]
    _write(settings, comparisons, begun, cpus)
    _print(settings, comparisons, cpus, console)
    console.print(f"results: {settings.results}")
    wrong = any(run.errors for each in comparisons for run in _runs(each.pairs))
    return 1 if wrong else 0


def _settings(arguments: Sequence[str] | None) -> Settings:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of one measured run")
    parser.add_argument("--warmup", type=float, default=_WARMUP_S, help="seconds before each run")
    parser.add_argument("--only", action="append", choices=names, help="may be given several times")
    parser.add_argument("--ours", choices=_OURS, default="pyserve")
    parser.add_argument(
        "--direct", action="store_const", const="pyserve.aio", dest="ours",
        help="a bare pyserve.aio server, without ingress",
    )  # fmt: skip
    parser.add_argument(
        "--unpinned", action="store_true", help="let all run on every CPU; writes unpinned.json"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args(arguments)
    if options.pairs < 1 or options.seconds <= 0 or options.warmup < 0:
        parser.error("--pairs must be at least 1, --seconds above 0, --warmup at least 0")
    return Settings(
        ours=options.ours,
        pairs=options.pairs,
        duration=Duration(options.seconds, options.warmup),
        workloads=tuple(each for each in WORKLOADS if each.name in (options.only or names)),
        is_pinned=not options.unpinned,
        output=options.output,
    )


def _compare(workload: Workload, settings: Settings, cpus: CpuSets, console: Console) -> Comparison:
    """Run all pairs of one workload; both servers live as long, and one of them is idle."""
    program = find_generator()
    pairs: list[Pair] = []
    with ExitStack() as stack:
        ours = stack.enter_context(running_server(settings.ours, cpus.server))
        baseline = stack.enter_context(running_server(BASELINE, cpus.server))

        def run(server: RunningServer) -> Run:
            return measure(program, server, workload, settings.duration)

        for index in range(settings.pairs):
            # Who goes first changes, so that a drift of the machine favours nobody.
            if index % 2 == 0:
                our_run, baseline_run = run(ours), run(baseline)
            else:
                baseline_run, our_run = run(baseline), run(ours)
            pairs.append(Pair(our_run, baseline_run))
            done = compare(workload, pairs)
            console.print(
                f"{workload.name} {index + 1}/{settings.pairs}: {workload.target.metric} ratio "
                f"{done.target_ratio.median:.3f} ({workload.target.text})",
                highlight=False,
            )
    return compare(workload, pairs)


def _runs(pairs: Sequence[Pair]) -> list[Run]:
    return [run for pair in pairs for run in (pair.ours, pair.baseline)]


def _write(
    settings: Settings, comparisons: Sequence[Comparison], begun: object, cpus: CpuSets
) -> None:
    settings.output.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": begun,
        "ours": settings.ours,
        "baseline": BASELINE,
        "pairs": settings.pairs,
        "duration": asdict(settings.duration),
        "cpus": {"server": sorted(cpus.server), "generator": sorted(cpus.generator)},
        "workloads": [each.as_json(separate_cpus=cpus.separate) for each in comparisons],
    }
    text = json.dumps(document, indent=1) + "\n"
    settings.results.write_text(text, encoding="utf-8")
    if settings.is_pinned:
        image = settings.results.with_suffix(".png")
        chart.draw(comparisons, image, ours=settings.ours, baseline=BASELINE)


def _print(
    settings: Settings, comparisons: Sequence[Comparison], cpus: CpuSets, console: Console
) -> None:
    for each in comparisons:
        table = Table(title=each.workload.title, title_justify="left")
        for heading in ("", settings.ours, BASELINE, "ratio", "ratio, quartiles", "least to most"):
            table.add_column(heading, justify="left" if not heading else "right")
        for name, ratio in each.ratios.items():
            table.add_row(
                name,
                f"{each.ours[name].median:,.2f}",
                f"{each.baseline[name].median:,.2f}",
                f"{ratio.median:.3f}",
                f"{ratio.lower_quartile:.3f} - {ratio.upper_quartile:.3f}",
                f"{ratio.least:.3f} - {ratio.most:.3f}",
            )
        console.print(table)
        verdict = "met" if each.target_is_met else "NOT met"
        console.print(
            f"target {each.workload.target.text}: {verdict} ({each.target_ratio.median:.3f})",
            highlight=False,
        )
        for warning in each.warnings(separate_cpus=cpus.separate):
            console.print(f"warning: {warning}", highlight=False)
        console.print()


if __name__ == "__main__":
    sys.exit(main())
