"""Handle → handle calls against grpc.aio: CPU per call of both processes, in alternating pairs.

    python -m benchmarks.handles [--pairs 10] [--calls 20000] [--output FILE]

Both sides run at the same time of day on the same CPUs, first one and then the other; the ratio
is taken pair by pair.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pyserve
from benchmarks.comparison import Spread
from benchmarks.handle_calls import app
from benchmarks.machine import ROOT, stamp

CONCURRENCIES = (1, 100)
TARGET_RATIO = 1 / 8
_RESULTS = ROOT / "benchmarks" / "results" / "handles.json"
_DRIVE_TIMEOUT_S = 600.0

Drive = Callable[[int, int], dict[str, float]]


@contextmanager
def our_side() -> Iterator[Drive]:
    """Run a mesh of two deployments; yield what makes calls from one to the other."""
    with tempfile.TemporaryDirectory(prefix="pyserve-bench-") as home:
        os.environ["PYSERVE_HOME"] = home
        pyserve.start(address="127.0.0.1:0")
        try:
            handle = pyserve.run(app, name="bench")

            def drive(calls: int, concurrency: int) -> dict[str, float]:
                response = handle.drive.remote(calls, concurrency)
                return dict(response.result(timeout_s=_DRIVE_TIMEOUT_S))

            yield drive
        finally:
            pyserve.shutdown()


@contextmanager
def their_side() -> Iterator[Drive]:
    """Run two processes of grpc.aio; yield what makes calls from one to the other."""
    callee = _process()
    try:
        caller = _process("--call", str(_line(callee)["port"]))
        try:

            def drive(calls: int, concurrency: int) -> dict[str, float]:
                assert caller.stdin is not None
                order = {"calls": calls, "concurrency": concurrency}
                caller.stdin.write(json.dumps(order) + "\n")
                caller.stdin.flush()
                return _line(caller)

            yield drive
        finally:
            _end(caller)
    finally:
        _end(callee)


def main() -> int:
    """Measure, print and write the report; return 0 when the target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args()
    with our_side() as ours, their_side() as theirs:
        for drive in (ours, theirs):  # Warm up.
            drive(options.calls // 4, 100)
        report = [
            _compared(ours, theirs, options.calls, concurrency, options.pairs)
            for concurrency in CONCURRENCIES
        ]
    text = json.dumps({"machine": stamp(), "workloads": report}, indent=2) + "\n"
    options.output.write_text(text, encoding="utf-8")
    return 0 if all(each["met"] for each in report) else 1


def _compared(
    ours: Drive, theirs: Drive, calls: int, concurrency: int, pairs: int
) -> dict[str, object]:
    # One call at a time takes several times as long.
    calls = calls if concurrency > 1 else calls // 4
    runs = [(ours(calls, concurrency), theirs(calls, concurrency)) for _ in range(pairs)]
    wrong = sum(run["wrong"] for pair in runs for run in pair)
    figures: dict[str, object] = {"concurrency": concurrency, "calls": calls, "wrong": wrong}
    for name, of in _METRICS.items():
        sides = [[of(run, calls) for run in side] for side in zip(*runs, strict=True)]
        ratios = [mine / other for mine, other in zip(*sides, strict=True)]
        spreads = {"ours": sides[0], "grpc.aio": sides[1], "ratio": ratios}
        figures[name] = {side: asdict(Spread.of(values)) for side, values in spreads.items()}
        print(
            f"{concurrency:4} at once  {name:20} ours {Spread.of(sides[0]).median:9.2f}  "
            f"grpc.aio {Spread.of(sides[1]).median:9.2f}  ratio {Spread.of(ratios).median:.3f}"
        )
        if name == "cpu_us":
            figures["met"] = Spread.of(ratios).median <= TARGET_RATIO and not wrong
    return figures


_METRICS: dict[str, Callable[[dict[str, float], int], float]] = {
    "cpu_us": lambda run, calls: (run["caller_s"] + run["callee_s"]) / calls * 1e6,
    "cpu_us_of_caller": lambda run, calls: run["caller_s"] / calls * 1e6,
    "cpu_us_of_callee": lambda run, calls: run["callee_s"] / calls * 1e6,
    "wall_us": lambda run, calls: run["wall_s"] / calls * 1e6,
}


def _process(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.handle_calls", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )


def _line(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(timeout=60)
    process.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
