"""``make bench NAME=...``: run a benchmark by its name; ``NAME=list`` lists them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.machine import ROOT

_LOADGEN = "pyserve-loadgen"
_FAMILY_BENCH = (
    *("cargo", "bench", "--locked", "--quiet", "-p", "pyserve-router-core"),
    *("--bench", "family", "--", "--count", "2000"),
)
_RESULTS = "benchmarks/results"


@dataclass(frozen=True)
class Benchmark:
    """A program that measures something.

    Attributes:
        about: What it compares, and about how long that takes on two cores.
        command: What runs; the arguments of the command line follow.
        crate: A crate of the workspace whose program it starts.
        after: What runs after it, without arguments.
    """

    about: str
    command: tuple[str, ...]
    crate: str | None = None
    after: tuple[str, ...] | None = None


def _python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *arguments)


BENCHMARKS = {
    "calls": Benchmark(
        "pyserve against plain grpc.aio, in pairs: JSON and a chart (five minutes)",
        _python("benchmarks.run"),
        crate=_LOADGEN,
    ),
    "handles": Benchmark(
        "calls between handles against grpc.aio, in pairs (five minutes)",
        _python("benchmarks.handles"),
    ),
    "doors": Benchmark(
        "HTTP against uvicorn + FastAPI, TLS against none, in pairs (five minutes)",
        _python("benchmarks.doors"),
        crate=_LOADGEN,
    ),
    "batching": Benchmark(
        "the learnt wait against fixed windows, a saturated batcher (ten minutes)",
        _python("benchmarks.batching"),
        crate=_LOADGEN,
        after=_python("benchmarks.saturated"),
    ),
    "stepping": Benchmark(
        "continuous batching against whole batches and single requests (fifteen minutes)",
        _python("benchmarks.stepping"),
    ),
    "multiplexing": Benchmark(
        "a hundred models in slots for a quarter of them (a minute)",
        _python("benchmarks.multiplexing"),
    ),
    "pipeline": Benchmark(
        "a film in three stages: chunk by chunk against stage by stage (a minute)",
        _python("benchmarks.pipeline"),
    ),
    "arrays": Benchmark(
        "a table of numbers as bytes, as repeated numbers and as JSON (seconds)",
        _python("benchmarks.arrays"),
    ),
    "payloads": Benchmark(
        "1 KiB to 100 MiB by codec, in the message and by reference (minutes)",
        _python("benchmarks.payloads"),
    ),
    "telemetry": Benchmark(
        "what metrics, traces and the open page cost a call (eight minutes)",
        _python("benchmarks.telemetry"),
        crate=_LOADGEN,
    ),
    "routing": Benchmark(
        "what routing takes, and the router benchmarks of Ray Serve's guides (nine minutes)",
        _python("benchmarks.routing"),
    ),
    "mixes": Benchmark(
        "changes of the call mix on a real mesh: the default policy beside least (ten minutes)",
        _python("benchmarks.mix_changes"),
    ),
    "routing-family": Benchmark(
        "the default policy beside least in 2 000 generated workloads (three minutes)",
        _FAMILY_BENCH,
    ),
    "zones": Benchmark(
        "three hosts in two zones, with tiers and without (five minutes, needs root)",
        _python("benchmarks.zones"),
        crate=_LOADGEN,
    ),
    "autoscaling": Benchmark(
        "policies of autoscaling on simulated loads: a table and JSON (eight minutes)",
        _python("benchmarks.autoscaling_sim", "--out", f"{_RESULTS}/autoscaling.json"),
    ),
    "autoscaling-family": Benchmark(
        "autoscaling on two hundred workloads of new seeds (two minutes)",
        _python(
            *("benchmarks.autoscaling_family", "--workloads", "200"),
            *("--out", f"{_RESULTS}/autoscaling-family.json"),
        ),
    ),
    "autoscaling-live": Benchmark(
        "a step to eight replicas, and calls at zero, in a real mesh (six minutes)",
        _python("benchmarks.autoscaling_live"),
    ),
    "control-scale": Benchmark(
        "a controller with 4 000 replicas, 400 changes a second, 200 routers (a minute)",
        _python("benchmarks.control_scale"),
        crate="pyserve-meshload",
    ),
    "recovery": Benchmark(
        "kill a hundred controllers at random points of deploys, under calls (15 minutes)",
        _python("benchmarks.chaos.controllers"),
    ),
    "ray": Benchmark(
        "on one Ray cluster against Ray Serve, in pairs (five minutes)",
        _python("benchmarks.on_ray"),
        crate=_LOADGEN,
    ),
    "first-hour": Benchmark(
        "the same small service with LitServe, BentoML, Ray Serve, mosec, FastAPI (20 minutes)",
        _python("benchmarks.first_hour"),
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark that the first argument names with the others; return its exit status."""
    name, *rest = arguments or ["list"]
    if name == "list":
        for known, benchmark in BENCHMARKS.items():
            print(f"  make bench NAME={known:20} {benchmark.about}")
        return 0
    if name not in BENCHMARKS:
        print(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    return _run(BENCHMARKS[name], rest)


def _run(benchmark: Benchmark, arguments: Sequence[str]) -> int:
    if benchmark.crate:
        build = ["cargo", "build", "--locked", "--release", "-p", benchmark.crate]
        subprocess.run(build, cwd=ROOT, check=True)
    status = subprocess.run([*benchmark.command, *arguments], cwd=ROOT, check=False).returncode
    if status or not benchmark.after:
        return status
    return subprocess.run(benchmark.after, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
