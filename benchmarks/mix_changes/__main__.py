"""``make bench NAME=mixes``: changes of the call mix, the default routing policy beside ``least``.

Plays changes that have been reported and others that a seed draws, on a real mesh, through HTTP,
gRPC and handles. Both policies get the same arrivals and durations, one after the other; who goes
first alternates. A case that falls short of 95 % of what ``least`` answers is repeated up to twice,
and the median is judged.

Exit code: 0 when no phase falls short, 1 when one does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

import pyserve
from benchmarks.machine import ROOT, stamp
from benchmarks.mix_changes.applications import application
from benchmarks.mix_changes.cases import Case, reported
from benchmarks.mix_changes.doors import opened
from benchmarks.mix_changes.drawn import drawn
from benchmarks.mix_changes.judging import (
    ATTEMPTS_MAX,
    RATIO_MIN,
    Attempt,
    Figures,
    figures,
    is_met,
    is_open,
    medians,
    ratios,
)
from benchmarks.mix_changes.load import PATIENCE_S, Play, play
from pyserve import DeploymentHandle
from pyserve.config.routing import DEFAULT_POLICY

_RESULTS = ROOT / "benchmarks" / "results" / "mix_changes.json"
BASELINE = "least"
# Repeats that would end later are left out: then a case is judged by the attempts that it had.
_RUN_S_MAX = 600.0
# What an attempt takes besides its phases: two deployments, and the calls that are open at the end.
_DEPLOYING_S = 5.0
# Beyond it the generator may have set the pace.
_GENERATOR_SHARE_MAX = 0.5


@dataclass
class Bench:
    """A mesh, and what was measured on it.

    Attributes:
        policy: That is compared with ``least``.
        seed: Of arrivals and durations.
        attempts: Of each case, oldest first.
    """

    policy: str
    seed: int
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    _turn: int = 0

    def attempt(self, case: Case) -> None:
        """Play a case under both policies, each with a deployment that has seen nothing yet."""
        self._turn += 1
        # Where the default is ``least``, both sides are, and the ratios show the noise.
        sides = {"ours": self.policy, "least": BASELINE}
        order = sorted(sides, reverse=self._turn % 2 == 0)
        with deployed(case, {f"{side}-{self._turn}": sides[side] for side in order}) as handles:
            plays = dict(zip(order, (self._play(case, *each) for each in handles), strict=True))
        made = Attempt(
            first=order[0],
            ours=figures(case, plays["ours"]),
            least=figures(case, plays["least"]),
            generator_share=round(max(each.generator_share for each in plays.values()), 3),
        )
        self.attempts.setdefault(case.name, []).append(made)
        show(case, made, self.policy)

    def _play(self, case: Case, name: str, handle: DeploymentHandle) -> Play:
        async def main() -> Play:
            async with opened(case.door, pyserve.status().addresses[0], name, handle) as call:
                return await play(case, call, self.seed)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())


@contextmanager
def deployed(case: Case, policies: dict[str, str]) -> Iterator[list[tuple[str, DeploymentHandle]]]:
    """Deploy an application for each policy; yield their names and handles, in the same order."""
    handles = []
    try:
        for name, policy in policies.items():
            made = application(case, policy)
            handle = pyserve.run(made, name=name, route_prefix=f"/{name}", timeout_s=60.0)
            handles.append((name, handle))
        yield handles
    finally:
        for name, _ in handles:
            pyserve.delete(name)


@contextmanager
def mesh() -> Iterator[None]:
    """Run a mesh in a home of its own."""
    with tempfile.TemporaryDirectory(prefix="pyserve-bench-") as home:
        os.environ["PYSERVE_HOME"] = home
        pyserve.start(address="127.0.0.1:0")
        try:
            yield
        finally:
            pyserve.shutdown(grace_s=1.0)


def show(case: Case, attempt: Attempt, policy: str) -> None:
    """Print a line for each phase that is judged."""
    print(
        f"{case.name} ({case.replicas} × {case.style}, limit {case.limit}, {case.door}; "
        f"{attempt.first} first)"
    )
    for number, ratio in enumerate(ratios(attempt)):
        phase = case.phases[number]
        if phase.is_judged:
            loop = f"open {phase.rate:g}/s" if phase.rate else f"closed, {phase.callers} callers"
            print(
                f"  {number + 1}. {loop:18}  {policy} {_told(attempt.ours[number])}  "
                f"{BASELINE} {_told(attempt.least[number])}  ratio {ratio.per_s:.3f}"
                f" (mean {ratio.mean_ms:.2f}, p99 {ratio.p99_ms:.2f})"
            )
    if attempt.generator_share > _GENERATOR_SHARE_MAX:
        print(f"  the load generator took {attempt.generator_share:.0%} of a core")
    sys.stdout.flush()


def _told(each: Figures) -> str:
    failed = f", failed {each.errors}" if each.errors else ""
    return f"{each.per_s:7.1f}/s {each.mean_ms:6.1f} ms p99 {each.p99_ms:6.1f} ms{failed}"


def run(cases: list[Case], policy: str, seed: int) -> Bench:
    """Play every case once, and then again those that fell short."""
    bench, begun_s = Bench(policy, seed), time.monotonic()
    with mesh():
        for case in cases:
            bench.attempt(case)
        for case in cases * (ATTEMPTS_MAX - 1):
            if is_open(case, bench.attempts[case.name]):
                takes_s = 2 * case.seconds_max + _DEPLOYING_S
                if time.monotonic() - begun_s + takes_s < _RUN_S_MAX:
                    bench.attempt(case)
                else:
                    print(f"no time is left to repeat {case.name}")
    return bench


def report(cases: Sequence[Case], bench: Bench) -> list[dict[str, object]]:
    """Return what the results say of each case."""
    return [
        {
            **asdict(case),
            "attempts": [asdict(each) for each in bench.attempts[case.name]],
            "ratios": [asdict(each) for each in medians(bench.attempts[case.name])],
            "met": is_met(case, bench.attempts[case.name]),
        }
        for case in cases
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the results, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mix_changes", description=__doc__)
    parser.add_argument("--policy", default=DEFAULT_POLICY, help="in place of the default")
    parser.add_argument("--seed", type=int, help="of everything that is drawn; else a fresh one")
    parser.add_argument("--drawn", type=int, default=20, help="how many changes are drawn")
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument(
        "--output", type=Path, help="by default results/mix_changes.json, for a whole run"
    )
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    cases = [
        each for each in (*reported(), *drawn(seed, options.drawn)) if options.only in each.name
    ]
    if not cases:
        parser.error(f"no case has {options.only!r} in its name")
    print(f"{options.policy} beside {BASELINE}, --seed {seed}", flush=True)
    begun, begun_s = stamp(), time.monotonic()
    made = report(cases, run(cases, options.policy, seed))
    short = [str(each["name"]) for each in made if not each["met"]]
    print(f"{len(made)} cases in {time.monotonic() - begun_s:.0f} s; fall short: {short or 'none'}")
    is_whole = not options.only and options.policy == DEFAULT_POLICY
    if output := options.output or (_RESULTS if is_whole else None):
        document = {
            "machine": begun,
            "policy": options.policy,
            "seed": seed,
            "seconds": round(time.monotonic() - begun_s, 1),
            "ratio_min": RATIO_MIN,
            "patience_s": PATIENCE_S,
            "cases": made,
        }
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"results: {output}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
