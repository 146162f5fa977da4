"""``python -m benchmarks.saturated``: a batcher with more callers than it can serve.

Batches of 32, steps of 10 ms, 128 callers who call again at once: 3200 answers/s are all that the
steps allow. A mesh with ``@pyserve.batch`` in pairs with a batcher by hand on grpc.aio. The
figures become the part ``saturated`` of the other results on batches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks import batched, machine
from benchmarks.comparison import Spread
from benchmarks.generator import find_generator
from benchmarks.measure import Duration, Run, measure
from benchmarks.processes import CpuSets, RunningServer, affinity, running_server
from benchmarks.workloads import Target, Workload

RESULTS = Path(__file__).parent / "results" / "batching.json"
OURS, PLAIN = "batched mesh", "batched grpc.aio"
CALLERS = 128
ANSWERS_PER_S_MAX = batched.SIZE_MAX / batched.STEP_S
SHARE_MIN = 0.985
CPU_US_MAX = 35.0

_WORKLOAD = Workload(
    name="saturated",
    title=f"{CALLERS} callers, batches of {batched.SIZE_MAX}, steps of 10 ms",
    arguments=(
        *("--path", "/services.echo.Echo/Echo", "--payload-bytes", "100", "--expect-echo"),
        *("--in-flight", str(CALLERS), "--connections", "8", "--timeout-s", "10"),
    ),
    target=Target("requests_per_s", 1.0, at_least=True, text="as many answers"),
)
_METRICS: dict[str, Callable[[Run], float]] = {
    "share_of_bound": lambda run: run.metrics["requests_per_s"] / ANSWERS_PER_S_MAX,
    "cpu_us_per_call": lambda run: run.metrics["cpu_us_per_request"],
    "p50_ms": lambda run: run.metrics["p50_ms"],
    "p99_ms": lambda run: run.metrics["p99_ms"],
}


def run(pairs: int, duration: Duration) -> dict[str, object]:
    """Measure all pairs, print them, and return what belongs into the results."""
    cpus = CpuSets.of(tuple(os.sched_getaffinity(0)))
    begun = machine.stamp()
    with affinity(cpus.generator), ExitStack() as stack:
        sides = [stack.enter_context(running_server(name, cpus.server)) for name in (OURS, PLAIN)]
        runs = [_pair(index, sides, duration) for index in range(pairs)]
    return {"machine": begun, "answers_per_s_max": ANSWERS_PER_S_MAX, **_summary(runs)}


def _pair(index: int, sides: Sequence[RunningServer], duration: Duration) -> list[Run]:
    # Who goes first changes, so that a drift of the machine favours nobody.
    order = sides if index % 2 == 0 else sides[::-1]
    program = find_generator()
    runs = [measure(program, server, _WORKLOAD, duration) for server in order]
    return runs if index % 2 == 0 else runs[::-1]


def _summary(pairs: Sequence[Sequence[Run]]) -> dict[str, object]:
    figures: dict[str, object] = {}
    medians: dict[str, float] = {}
    for name, of in _METRICS.items():
        ours, plain = ([of(run) for run in side] for side in zip(*pairs, strict=True))
        ratio = Spread.of([mine / other for mine, other in zip(ours, plain, strict=True)])
        spreads = {OURS: Spread.of(ours), PLAIN: Spread.of(plain), "ratio": ratio}
        figures[name] = {side: asdict(spread) for side, spread in spreads.items()}
        medians[name] = spreads[OURS].median
        print(
            f"saturated  {name:16} mesh {medians[name]:8.3f} ({min(ours):.3f} to {max(ours):.3f})"
            f"  grpc.aio by hand {spreads[PLAIN].median:8.3f}  ratio {ratio.median:.3f}",
            flush=True,
        )
    errors = [run.errors for pair in pairs for run in pair if run.errors]
    return {"metrics": figures, "errors": errors, "failures": failures(medians, errors)}


def failures(medians: dict[str, float], errors: Sequence[object]) -> list[str]:
    """Return in words which targets the medians of ours miss."""
    found = [f"saturated: wrong answers: {error}" for error in errors]
    if medians["share_of_bound"] < SHARE_MIN:
        found.append(
            f"saturated: {medians['share_of_bound']:.1%} of what the steps allow; at least "
            f"{SHARE_MIN:.1%} is the target"
        )
    if medians["cpu_us_per_call"] > CPU_US_MAX:
        found.append(
            f"saturated: {medians['cpu_us_per_call']:.0f} us of CPU a call; at most "
            f"{CPU_US_MAX:.0f} is the target"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep the figures; 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saturated", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measured run")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.pairs < 1 or options.seconds <= 0:
        parser.error("--pairs must be at least 1, --seconds above 0")
    found = run(options.pairs, Duration(options.seconds, 1.0))
    document = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    document["saturated"] = found
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    missed = found["failures"]
    assert isinstance(missed, list)
    print("\n".join(missed) or "saturated: both targets are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
