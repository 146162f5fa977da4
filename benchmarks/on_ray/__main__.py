"""Requests per CPU second of pyserve on Ray and of Ray Serve, in alternating pairs.

    python -m benchmarks.on_ray [--pairs 3] [--seconds 5] [--calls 20000] [--output FILE]

One cluster of Ray on this machine; in each pair both sides are deployed one after the other, from
nothing, and taken away. CPU time is that of all processes that serve, Ray's own among them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import generator
from benchmarks.comparison import Spread
from benchmarks.cpu import TreeMeter
from benchmarks.machine import ROOT, stamp
from benchmarks.processes import CpuSets, affinity

OURS, THEIRS = "pyserve", "Ray Serve"
# What the design demands, ours to theirs; of the last one: not more.
TARGETS = {"unary_per_cpu_s": 10.0, "handle_calls_per_cpu_s": 5.0, "first_answer_s": 1.0}
_SWITCHES = ("RAY_SERVE_THROUGHPUT_OPTIMIZED=1", "RAY_SERVE_ENABLE_HA_PROXY=1")
_RESULTS = ROOT / "benchmarks" / "results" / "on_ray.json"
_WARMUP_S = 3.0
_AT_ONCE = 100
_UNARY = (
    *("--path", "/services.echo.Echo/Echo", "--payload-bytes", "100", "--expect-echo"),
    *("--in-flight", "64", "--connections", "8", "--timeout-s", "10"),
    # HAProxy of Ray Serve finds the application by it alone.
    *("--header", "application:echo"),
)


class Host:
    """The process below which everything serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.meter = TreeMeter(process.pid)

    def order(self, **order: object) -> dict[str, Any]:
        """Have an order carried out; return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next line; what Ray prints besides is passed on."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
            sys.stderr.write(line)
        raise SystemExit("the host of the cluster has ended; its output above says why")


@contextmanager
def host(cpus: CpuSets, home: str, switches: Sequence[str]) -> Iterator[Host]:
    """Run a cluster until the block ends.

    Args:
        cpus: That it may use.
        home: A folder for our mesh; one that runs on this machine already is none of our business.
        switches: Variables of its environment, ``NAME=VALUE`` each.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSERVE_")}
    environment |= {
        "PYSERVE_HOME": home,
        "PYTHONPATH": str(ROOT),
        "RAY_USAGE_STATS_ENABLED": "0",
        # By default HAProxy has that of a mesh of ours.
        "RAY_SERVE_HAPROXY_METRICS_PORT": "19002",
        **dict(each.split("=", 1) for each in switches),
    }
    with affinity(cpus.server):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.on_ray.cluster"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            text=True,
        )
    assert process.stdin is not None
    try:
        made = Host(process)
        made.answer()
        yield made
        process.stdin.close()
        process.wait(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def measure(found: Host, side: str, options: argparse.Namespace) -> dict[str, float]:
    """Deploy one side, measure it, and take it away."""
    deployed = found.order(deploy=side)
    cpu_s: dict[str, float] = {}

    def take_cpu(moment: str) -> None:
        cpu_s[moment] = found.meter.cpu_s()

    report = generator.drive(
        generator.find_generator(options.programs),
        ("--target", deployed["address"], *_UNARY),
        seconds=options.seconds,
        warmup_s=_WARMUP_S,
        on_moment=take_cpu,
    )
    errors = report["errors"]
    assert isinstance(errors, Mapping)
    if errors:
        raise SystemExit(f"{side}: wrong answers: {errors}")
    requests = report["requests"]
    assert isinstance(requests, int)
    found.order(drive=options.calls // 10, at_once=_AT_ONCE)
    before_s = found.meter.cpu_s()
    driven = found.order(drive=options.calls, at_once=_AT_ONCE)
    handles_s, processes = found.meter.cpu_s() - before_s, found.meter.processes
    if driven["wrong"]:
        raise SystemExit(f"{side}: {driven['wrong']} wrong answers of handles")
    found.order(end=True)
    rate = report["requests_per_s"]
    assert isinstance(rate, int | float)
    return {
        "unary_per_cpu_s": requests / (cpu_s["measured"] - cpu_s["measuring"]),
        "unary_per_s": float(rate),
        "handle_calls_per_cpu_s": options.calls / handles_s,
        "handle_calls_per_s": options.calls / driven["wall_s"],
        "first_answer_s": float(deployed["first_answer_s"]),
        "processes": float(processes),
    }


def main() -> int:
    """Measure, print and write the report; return 0 when the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument(
        "--switch",
        action="append",
        help="variable of the cluster, NAME=VALUE; by default those with which Ray Serve takes the "
        "least time, of which pyserve reads the first one too",
    )
    parser.add_argument("--programs", type=Path, default=ROOT / "target")
    parser.add_argument("--output", type=Path, default=_RESULTS)
    options = parser.parse_args()
    switches = options.switch or list(_SWITCHES)
    cpus = CpuSets.here()
    runs: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
    with (
        tempfile.TemporaryDirectory(prefix="pyserve-bench-") as home,
        host(cpus, home, switches) as found,
        affinity(cpus.generator),
    ):
        for pair in range(options.pairs):
            for side in (OURS, THEIRS) if pair % 2 == 0 else (THEIRS, OURS):
                runs[side].append(measure(found, side, options))
                print(side, runs[side][-1], flush=True)
    figures = compared(runs[OURS], runs[THEIRS])
    report = {
        "machine": {**stamp(), "ray": metadata.version("ray")},
        "switches": switches,
        "pairs": options.pairs,
        "figures": figures,
    }
    options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if all(each["met"] for each in figures.values() if "met" in each) else 1


def compared(
    ours: list[dict[str, float]], theirs: list[dict[str, float]]
) -> dict[str, dict[str, Any]]:
    """Sum up the pairs; ratios are taken pair by pair."""
    figures: dict[str, dict[str, Any]] = {}
    for name in ours[0]:
        mine, others = [run[name] for run in ours], [run[name] for run in theirs]
        ratio = Spread.of([one / other for one, other in zip(mine, others, strict=True)])
        figures[name] = {
            OURS: asdict(Spread.of(mine)),
            THEIRS: asdict(Spread.of(others)),
            "ratio": asdict(ratio),
        }
        if (bound := TARGETS.get(name)) is not None:
            is_less = name == "first_answer_s"
            figures[name]["met"] = ratio.median <= bound if is_less else ratio.median >= bound
    return figures


if __name__ == "__main__":
    sys.exit(main())
