"""``python -m benchmarks.batching``: the learnt wait against fixed windows and the seeds' rule.

Open-loop Poisson arrivals, two models of a step, rates from nearly idle to beyond what full
batches sustain. Every rule gets the same arrivals. In virtual time the shipping state machine
decides; live, the shipping queue does, with ``sleep`` as the step.

``--family N`` plays N workloads that change while they run instead, from ``--seed`` on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import batching_family, batching_live, batching_rules, machine
from benchmarks.batching_rules import Outcome, Step
from pyserve.batching import BatchOptions

RESULTS = Path(__file__).parent / "results" / "batching.json"
SIZE_MAX = 32
FIXED = Step(fixed_s=0.1, per_item_s=0.0)
LINEAR = Step(fixed_s=0.002, per_item_s=0.0001)
FRACTIONS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95, 1.1)
# What `auto` may be worse than the best other rule.
VIRTUAL_MARGIN = 0.02
LIVE_MARGIN = 0.10
# At 100 requests/s and steps of 100 ms, against the seeds' rule.
SEEDS_RATIO_MIN = 1.6


@dataclass(frozen=True)
class Cell:
    """One step, one rate."""

    step: Step
    rate: float

    @property
    def name(self) -> str:
        cost = f"{self.step.fixed_s * 1000:g} ms"
        if self.step.per_item_s:
            cost += f" + {self.step.per_item_s * 1000:g} ms n"
        return f"step {cost}, {self.rate:.0f} req/s"


def cells(capacity: float) -> list[Cell]:
    """Return what is measured; the last rate of each step is more than can be answered.

    Args:
        capacity: Requests/s of full batches of the linear step. A live loop sustains fewer than
            the step alone would allow.
    """
    fixed = [Cell(FIXED, rate) for rate in (20, 50, 100, 200, 300, FIXED.capacity(SIZE_MAX) * 1.1)]
    return [*fixed, Cell(LINEAR, 20), *(Cell(LINEAR, capacity * part) for part in FRACTIONS)]


@dataclass(frozen=True)
class Verdict:
    """How ``auto`` did in one cell.

    Attributes:
        best: The best other rule.
        worse: By what part ``auto`` is worse than it, below 0 if it is better: in mean latency
            where ``auto`` answers everything, else in requests/s.
    """

    best: str
    worse: float
    by: str


def judge(outcomes: Mapping[str, Outcome]) -> Verdict:
    """Compare ``auto`` with every rule that also answers everything."""
    auto = outcomes["auto"]
    others = {name: each for name, each in outcomes.items() if name != "auto"}
    keeping_up = {name: each for name, each in others.items() if each.answers_all}
    if auto.answers_all and keeping_up:
        best = min(keeping_up, key=lambda name: keeping_up[name].mean_s)
        return Verdict(best, auto.mean_s / keeping_up[best].mean_s - 1, "mean latency")
    best = max(others, key=lambda name: others[name].answered_per_s)
    return Verdict(best, others[best].answered_per_s / auto.answered_per_s - 1, "requests/s")


def virtual(cell: Cell, count: int, seed: int = 1) -> dict[str, Outcome]:
    """Play every rule in virtual time."""
    arrivals = batching_rules.poisson(cell.rate, count, seed)
    found = batching_rules.rules(SIZE_MAX)
    return {name: rule(arrivals, cell.step) for name, rule in found.items()}


def closed(step: Step, callers: int, think_s: float, count: int) -> dict[str, Outcome]:
    """Play a closed loop, for ``auto`` and the fixed windows."""
    outcomes = {}
    for wait in ("auto", *batching_rules.WINDOWS_S):
        draw = random.Random(1)
        options = BatchOptions(max_batch_size=SIZE_MAX).updated(batch_wait_timeout_s=wait)
        outcomes[_name(wait)] = batching_rules.play(
            options,
            sorted(draw.uniform(0, 0.1) for _ in range(callers)),
            step,
            think=lambda draw=draw: draw.uniform(0.5, 1.5) * think_s,  # type: ignore[misc]
            count=count,
        )
    return outcomes


def bursts(step: Step, rate: float, count: int) -> dict[str, Outcome]:
    """Play bursts of 8 calls, spread over a tenth of the step's fixed part."""
    draw = random.Random(1)
    arrivals: list[float] = []
    begin = 0.0
    while len(arrivals) < count:
        begin += draw.expovariate(rate / 8)
        arrivals += [begin + draw.uniform(0, step.fixed_s / 10) for _ in range(8)]
    arrivals.sort()
    outcomes = {}
    for wait in ("auto", *batching_rules.WINDOWS_S):
        options = BatchOptions(max_batch_size=SIZE_MAX).updated(batch_wait_timeout_s=wait)
        outcomes[_name(wait)] = batching_rules.play(options, arrivals, step)
    return outcomes


def _name(wait: object) -> str:
    return "auto" if wait == "auto" else f"window {float(str(wait)) * 1000:g} ms"


def live(cell: Cell, seconds: float, rounds: int) -> dict[str, Outcome]:
    """Run every rule on a real loop: all at once if they use little time, else by turns."""
    starts: dict[str, Callable[[batching_live.Live], batching_live.Submit]] = {}
    for wait in ("auto", *batching_rules.WINDOWS_S):
        options = BatchOptions(max_batch_size=SIZE_MAX).updated(batch_wait_timeout_s=wait)
        starts[_name(wait)] = lambda live, options=options: live.shipping(options)  # type: ignore[misc]
    starts["frozen 10 ms"] = lambda live: live.frozen(0.01, SIZE_MAX)
    together = cell.rate <= 400
    groups = [starts] if together else [{name: start} for name, start in starts.items()]
    results: dict[str, list[Outcome]] = {name: [] for name in starts}
    for turn in range(1 if together else rounds):
        length = int(cell.rate * (seconds * 12 if together else seconds))
        arrivals = batching_rules.poisson(cell.rate, length, turn)
        for group in groups[turn % len(groups) :] + groups[: turn % len(groups)]:
            for name, outcome in batching_live.measure(group, arrivals, cell.step).items():
                results[name].append(outcome)
    return {name: batching_live.best_of(each) for name, each in results.items()}


def report(kind: str, name: str, outcomes: Mapping[str, Outcome]) -> dict[str, object]:
    """Print one cell and return it for the file."""
    verdict = judge(outcomes)
    auto = outcomes["auto"]
    print(
        f"{kind:8} {name:36} auto {auto.mean_s * 1000:8.2f} ms {auto.answered_per_s:7.0f}/s "
        f"batch {auto.mean_batch:5.1f}   best other {verdict.best}: auto is "
        f"{verdict.worse:+.1%} worse in {verdict.by}",
        flush=True,
    )
    return {
        "kind": kind,
        "cell": name,
        "verdict": asdict(verdict),
        "outcomes": {rule: asdict(outcome) for rule, outcome in outcomes.items()},
    }


def failures(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return in words where ``auto`` is worse than it may be."""
    found = []
    for row in rows:
        verdict = row["verdict"]
        assert isinstance(verdict, dict)
        margin = LIVE_MARGIN if row["kind"] == "live" else VIRTUAL_MARGIN
        if row["kind"] in {"virtual", "live"} and verdict["worse"] > margin:
            found.append(
                f"{row['kind']}, {row['cell']}: auto is {verdict['worse']:.1%} worse than "
                f"{verdict['best']} in {verdict['by']}; at most {margin:.0%} is allowed"
            )
    return found


def run(count: int, seconds: float, rounds: int) -> dict[str, object]:
    """Measure everything."""
    virtual_cells = cells(LINEAR.capacity(SIZE_MAX))
    rows = [report("virtual", cell.name, virtual(cell, count)) for cell in virtual_cells]
    for step in (FIXED, LINEAR):
        for callers in (2, 8, 32):
            think_s = 0.02 * step.fixed_s
            name = f"{callers} callers, step {step.fixed_s * 1000:g} ms"
            rows.append(report("closed", name, closed(step, callers, think_s, count // 4)))
        for rate in (0.2, 0.6):
            calls_per_s = rate * 8 / step.duration_s(8)
            name = f"bursts of 8, {calls_per_s:.0f} req/s, step {step.fixed_s * 1000:g} ms"
            rows.append(report("bursts", name, bursts(step, calls_per_s, count // 2)))
    sizes = (1, 2, 4, 8, 16, 32)
    curve = {str(n): batching_live.throughput(LINEAR, n, max(seconds / 3, 0.3)) for n in sizes}
    print("requests/s by size:", {size: round(each) for size, each in curve.items()}, flush=True)
    if seconds:
        live_cells = cells(curve[str(SIZE_MAX)])
        rows += [report("live", cell.name, live(cell, seconds, rounds)) for cell in live_cells]
    return {
        "machine": machine.stamp(),
        "size_max": SIZE_MAX,
        "requests_per_s_by_size": curve,
        "rows": rows,
        "failures": failures(rows),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, keep the figures; 1 if ``auto`` is worse than it may be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batching", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="arrivals of a virtual run")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a live run; 0: none")
    parser.add_argument("--rounds", type=int, default=5, help="live runs of each rule")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--family", type=int, default=0, metavar="N", help="workloads that change")
    parser.add_argument("--seed", type=int, default=1, help="the first of the family")
    options = parser.parse_args(arguments)
    if options.family:
        return batching_family.report(options.seed, options.family)
    results = run(options.count, options.seconds, options.rounds)
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    missed = results["failures"]
    assert isinstance(missed, list)
    print("\n".join(missed) or f"auto keeps its margins everywhere; figures in {options.out}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
