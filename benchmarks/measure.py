"""One run: drive a server with a workload and take its CPU time, its memory and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import generator
from benchmarks.cpu import TreeMeter
from benchmarks.processes import RunningServer
from benchmarks.workloads import Workload

# Metrics of a run, in the order of the tables. Memory is that of the whole tree.
METRICS = (
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "cpu_us_per_request",
    "messages_per_cpu_s",
    "mb_per_s",
    "rss_mib",
)
# Above this share of its core the generator, not the server, may set the pace.
GENERATOR_SHARE_MAX = 0.9


@dataclass(frozen=True)
class Duration:
    """How long one run takes, in seconds."""

    measured_s: float
    warmup_s: float


@dataclass(frozen=True)
class Run:
    """What one run brought.

    Attributes:
        metrics: Values of ``METRICS``.
        generator_share: CPU time of the generator, as a share of one core.
        server_share: CPU time of the server's tree, as a share of one core.
        processes: Processes in the server's tree.
        errors: Wrong answers by name; empty for a run that counts.
    """

    metrics: Mapping[str, float]
    generator_share: float
    server_share: float
    processes: int
    errors: Mapping[str, int]


def measure(program: Path, server: RunningServer, workload: Workload, duration: Duration) -> Run:
    """Run one workload against a server that runs.

    Raises:
        GeneratorError: There was no report.
    """
    meter = TreeMeter(*server.pids)
    cpu_s: dict[str, float] = {}

    def take_cpu(moment: str) -> None:
        cpu_s[moment] = meter.cpu_s()

    report = generator.drive(
        program,
        ("--target", server.address, *server.arguments, *workload.arguments),
        seconds=duration.measured_s,
        warmup_s=duration.warmup_s,
        on_moment=take_cpu,
    )
    used_s = cpu_s["measured"] - cpu_s["measuring"]
    return run_of(report, used_s=used_s, rss_bytes=meter.rss_bytes, processes=meter.processes)


def run_of(report: Mapping[str, object], *, used_s: float, rss_bytes: int, processes: int) -> Run:
    """Make a run of the generator's report and the server's CPU time and memory."""
    requests, messages = _number(report, "requests"), _number(report, "messages")
    latency_ms = report["latency_ms"]
    assert isinstance(latency_ms, Mapping)
    metrics = {
        "requests_per_s": _number(report, "requests_per_s"),
        "p50_ms": _number(latency_ms, "p50"),
        "p99_ms": _number(latency_ms, "p99"),
        "cpu_us_per_request": used_s / requests * 1e6 if requests else float("inf"),
        "messages_per_cpu_s": messages / used_s if used_s else float("inf"),
        "mb_per_s": _number(report, "received_mb_per_s"),
        "rss_mib": rss_bytes / 2**20,
    }
    errors = report["errors"]
    assert isinstance(errors, Mapping)
    return Run(
        metrics=metrics,
        generator_share=_number(report, "cpu_share") if report["cpu_share"] is not None else 0.0,
        server_share=used_s / _number(report, "window_s"),
        processes=processes,
        errors={str(name): int(count) for name, count in errors.items()},
    )


def _number(fields: Mapping[str, object], name: str) -> float:
    value = fields[name]
    assert isinstance(value, int | float), f"{name} is {value!r}"
    return float(value)
