"""``make soak``, second part: restarts, failures and overload under an open load.

Every replica is restarted under 500 calls a second, and no call may fail; all replicas fail for ten
seconds, and get at most 1.2 attempts for each call; replicas get three times what they can answer,
and answer at least 90 % of what they can, with flat memory.
Exit code: 0 when all of it holds, 1 when something does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

import pyserve
from benchmarks.chaos import applications
from benchmarks.chaos.scenarios import Outcome, all_failing, overload, rolling_restart
from benchmarks.machine import ROOT, stamp

_RESULTS = ROOT / "benchmarks" / "results" / "chaos.json"

Scenario = Callable[[str], Coroutine[Any, Any, Outcome]]


def main() -> int:
    """Run the scenarios, print and write what they found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="restarts of each replica")
    parser.add_argument("--failing-s", type=float, default=10.0)
    parser.add_argument("--overload-s", type=float, default=60.0)
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyserve-chaos-") as home:
        # A mesh that runs on this machine already is none of our business.
        for name in [name for name in os.environ if name.startswith("PYSERVE_")]:
            del os.environ[name]
        os.environ["PYSERVE_HOME"] = home
        outcomes = _run(options)
    document = {"machine": stamp(), **{name: each.figures for name, each in outcomes.items()}}
    problems = [f"{name}: {text}" for name, each in outcomes.items() for text in each.problems]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**document, "problems": problems}, indent=1)
    options.output.write_text(text + "\n", encoding="utf-8")
    print("\n".join([*problems, f"report: {options.output}"]))
    return 1 if problems else 0


def _run(options: argparse.Namespace) -> dict[str, Outcome]:
    pyserve.start(address="127.0.0.1:0")
    try:
        return {
            "rolling_restart": _measure(
                applications.steady(),
                lambda address: rolling_restart(address, rounds=options.rounds),
            ),
            "all_failing": _measure(
                applications.moody({}), lambda _: all_failing(seconds=options.failing_s)
            ),
            "overload": _measure(
                applications.narrow(),
                lambda address: overload(address, seconds=options.overload_s),
            ),
        }
    finally:
        pyserve.shutdown()


def _measure(application: pyserve.Application, scenario: Scenario) -> Outcome:
    """Deploy, drive, and take away."""
    pyserve.run(application)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcome = runner.run(scenario(pyserve.status().addresses[0]))
    finally:
        pyserve.delete("default")
    print(json.dumps(outcome.figures), flush=True)
    return outcome


if __name__ == "__main__":
    raise SystemExit(main())
