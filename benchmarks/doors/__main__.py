"""``make bench NAME=doors``: HTTP beside uvicorn + FastAPI and granian, TLS beside none, in pairs.

Exit code: 0 when every answer was right, whatever the figures; 1 when one was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.comparison import Comparison, Pair, compare
from benchmarks.doors.applications import ANSWER, PATH, REQUEST
from benchmarks.generator import find_generator
from benchmarks.machine import ROOT, stamp
from benchmarks.measure import Duration, measure
from benchmarks.processes import CpuSets, affinity, running_server
from benchmarks.workloads import WORKLOADS, Target, Workload

_RESULTS = ROOT / "benchmarks" / "results" / "doors.json"
_JSON_LOAD = (
    *("--protocol", "http1", "--path", PATH, "--body", REQUEST, "--expect-body", ANSWER),
    *("--in-flight", "16", "--connections", "16"),
)
_BYTES_LOAD = (
    *("--protocol", "http1", "--path", "/", "--payload-bytes", str(1024 * 1024), "--expect-echo"),
    *("--in-flight", "4", "--connections", "4"),
)
_UNARY = next(each for each in WORKLOADS if each.name == "unary_64")


@dataclass(frozen=True)
class Match:
    """Two contestants and what they do.

    Attributes:
        ours, baseline: Names in ``processes.CONTESTANTS``.
        workload: With the target, a ratio of ours to the baseline.
    """

    ours: str
    baseline: str
    workload: Workload


def _at_most(bound: float, text: str) -> Target:
    return Target("cpu_us_per_request", bound, at_least=False, text=text)


MATCHES = (
    Match(
        "mesh plain",
        "uvicorn",
        Workload("json", "JSON POST, plain Python", _JSON_LOAD, _at_most(1 / 3, "CPU <= 1/3")),
    ),
    Match(
        "mesh fastapi",
        "uvicorn",
        Workload(
            "fastapi",
            "JSON POST, FastAPI",
            _JSON_LOAD,
            _at_most(1 / 0.9, "requests per CPU second >= 0.9x"),
        ),
    ),
    Match(
        "mesh bare",
        "granian",
        Workload(
            "bytes",
            "1 MiB each way, bare ASGI",
            _BYTES_LOAD,
            Target("mb_per_s", 1.0, at_least=True, text="MB/s >= 1x"),
        ),
    ),
    Match(
        "mesh echo tls",
        "mesh echo",
        Workload(
            "tls", "unary 100 bytes, TLS", _UNARY.arguments, _at_most(1.4, "TLS adds <= 40 %")
        ),
    ),
)


def main() -> int:
    """Measure, print, write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doors", description=__doc__)
    names = [match.workload.name for match in MATCHES]
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--only", action="append", choices=names)
    parser.add_argument("--unpinned", action="store_true", help="let all run on every CPU")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args()
    cpus = CpuSets.here(is_pinned=not options.unpinned)
    begun = stamp()
    duration = Duration(options.seconds, options.warmup)
    matches = [each for each in MATCHES if each.workload.name in (options.only or names)]
    with affinity(cpus.generator):
        done = [(match, _play(match, options.pairs, duration, cpus)) for match in matches]
    document = {
        "machine": begun,
        "matches": [
            {"ours": match.ours, "baseline": match.baseline}
            | comparison.as_json(separate_cpus=cpus.separate)
            for match, comparison in done
        ],
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    runs = [run for _, each in done for pair in each.pairs for run in (pair.ours, pair.baseline)]
    return 1 if any(run.errors for run in runs) else 0


def _play(match: Match, pairs: int, duration: Duration, cpus: CpuSets) -> Comparison:
    program = find_generator()
    played: list[Pair] = []
    with ExitStack() as stack:
        ours = stack.enter_context(running_server(match.ours, cpus.server))
        baseline = stack.enter_context(running_server(match.baseline, cpus.server))
        for index in range(pairs):
            order = (ours, baseline) if index % 2 == 0 else (baseline, ours)
            runs = {
                server.name: measure(program, server, match.workload, duration) for server in order
            }
            played.append(Pair(runs[ours.name], runs[baseline.name]))
    comparison = compare(match.workload, played)
    _print(match, comparison, separate_cpus=cpus.separate)
    return comparison


def _print(match: Match, comparison: Comparison, *, separate_cpus: bool) -> None:
    ratio, metric = comparison.target_ratio, match.workload.target.metric
    verdict = "met" if comparison.target_is_met else "NOT met"
    ours, theirs = (side[metric].median for side in (comparison.ours, comparison.baseline))
    print(
        f"{match.workload.title}: {metric} {ours:.1f} against {theirs:.1f} ({match.baseline}), "
        f"ratio {ratio.median:.3f} ({ratio.least:.3f} to {ratio.most:.3f}); "
        f"{match.workload.target.text}: {verdict}"
    )
    for warning in comparison.warnings(separate_cpus=separate_cpus):
        print(f"warning: {warning}")


if __name__ == "__main__":
    sys.exit(main())
