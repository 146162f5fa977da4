"""``make hostile``: what each attack costs the neighbours, and what the ingress keeps of it.

In alternating rounds a well-behaved client asks with and without the attack. Attackers have one
CPU to themselves; the mesh and the neighbour share the others. Exit code 1 if an attack leaves
calls in flight, or costs more memory than it may.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.hostile.attacks import ATTACKS
from benchmarks.hostile.crowds import CROWDS
from benchmarks.hostile.mesh import attacked_mesh, in_flight, ingress_process, target_of
from benchmarks.hostile.victim import Victim, percentile
from benchmarks.machine import ROOT, stamp

RESULTS = ROOT / "benchmarks" / "results" / "hostile.json"
RSS_GROWTH_BYTES_MAX = 64 << 20
P99_RATIO_MAX = 2.0
_RATE = 100.0
# Of the attack alone, before the neighbour is measured beside it: longer than the connections of an
# address wait that has flooded before.
_LEAD_S = 1.5
_SETTLE_TIMEOUT_S = 30.0
_ATTACKER_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    attacks: Sequence[str]
    rounds: int
    seconds: float
    output: Path


@dataclass
class _Half:
    """The measurements of a neighbour in one half of each round, and the ingress's part of them.

    Attributes:
        latencies: Of each round, in seconds.
        cpu_shares: Of one CPU that the ingress took, of each round.
    """

    latencies: list[list[float]] = field(default_factory=list)
    cpu_shares: list[float] = field(default_factory=list)

    def measure(self, victim: Victim, ingress: psutil.Process, seconds: float) -> None:
        begun_s, cpu_s = time.perf_counter(), _cpu_s(ingress)
        self.latencies.append(victim.ask_steadily(_RATE, seconds))
        passed_s = time.perf_counter() - begun_s
        self.cpu_shares.append((_cpu_s(ingress) - cpu_s) / passed_s)

    def median_ms(self, share: float) -> float:
        """Return the median over rounds of a percentile."""
        of_rounds = [percentile(latencies, share) for latencies in self.latencies]
        return _milliseconds(statistics.median(of_rounds))

    def cpu_share(self) -> float:
        return round(statistics.median(self.cpu_shares), 3)


def main() -> int:
    """Measure, write the report and return the exit code."""
    settings = _settings()
    for name in [name for name in os.environ if name.startswith("PYSERVE_")]:
        del os.environ[name]
    cpus = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="pyserve-hostile-") as home:
        os.environ["PYSERVE_HOME"] = home
        if len(cpus) > 1:
            os.sched_setaffinity(0, cpus[:-1])
        # Before anything runs here, for the load that others make.
        report: dict[str, object] = {"machine": {**stamp(), "cpus": cpus}, "attacker_cpu": cpus[-1]}
        report["attacks"] = results = {}
        with attacked_mesh() as address:
            for name in [name for name in settings.attacks if name in ATTACKS]:
                results[name] = _measure(name, address, settings, cpus[-1])
                print(name, json.dumps(results[name]), flush=True)
        for name in [name for name in settings.attacks if name in CROWDS]:
            results[name] = _measure_crowd(name)
            print(name, json.dumps(results[name]), flush=True)
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    settings.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"report: {settings.output}")
    return 1 if any(result["problems"] for result in results.values()) else 0


def _measure_crowd(name: str) -> dict[str, object]:
    """In a process of its own, whose limits and variables its mesh has."""
    command = [sys.executable, "-m", "benchmarks.hostile.crowds", name]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if not ended.stdout:
        return {"problems": [f"it ended with {ended.returncode} and said nothing"]}
    seen: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return seen


def _measure(name: str, address: str, settings: Settings, cpu: int) -> dict[str, object]:
    host, _, port = address.rpartition(":")
    ingress = ingress_process()
    victim = Victim((host, int(port)), ATTACKS[name].neighbour)
    victim.ask_steadily(_RATE, 0.5)
    rss_before = ingress.memory_info().rss
    rss_max = rss_before
    calm = _Half()
    attacked = _Half()
    outcomes = []
    for _ in range(settings.rounds):
        calm.measure(victim, ingress, settings.seconds)
        attacker = _start(
            name, target_of(ATTACKS[name], address), settings.seconds + 2 * _LEAD_S, cpu
        )
        # One that rests while a crowd comes may be closed for it, so it goes on asking.
        victim.ask_steadily(_RATE, _LEAD_S)
        attacked.measure(victim, ingress, settings.seconds)
        rss_max = max(rss_max, ingress.memory_info().rss)
        _ask_until_it_ends(victim, attacker)
        output, _ = attacker.communicate(timeout=_ATTACKER_TIMEOUT_S)
        outcomes.append(json.loads(output))
        _settle()
    victim.close()
    return _result(calm, attacked, outcomes, (rss_before, rss_max, ingress.memory_info().rss))


def _start(name: str, address: str, seconds: float, cpu: int) -> subprocess.Popen[str]:
    """Start an attacker, and return when it has begun as far as one can tell."""
    command = [sys.executable, "-m", "benchmarks.hostile.attacker", name, address, str(seconds)]
    attacker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(attacker.pid, [cpu])
    assert attacker.stdout is not None
    assert attacker.stdout.readline() == "ready\n"
    return attacker


def _ask_until_it_ends(victim: Victim, attacker: subprocess.Popen[str]) -> None:
    victim.ask_steadily(_RATE, _ATTACKER_TIMEOUT_S, lambda: attacker.poll() is not None)


def _settle() -> None:
    """Wait until no call of the attack is left; a late one counts as a problem, not as an error."""
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    while in_flight() and time.monotonic() < deadline:
        time.sleep(0.05)


def _result(
    calm: _Half,
    attacked: _Half,
    outcomes: list[dict[str, object]],
    rss_bytes: tuple[int, int, int],
) -> dict[str, object]:
    ratios = [
        percentile(with_it, 0.99) / percentile(without, 0.99)
        for without, with_it in zip(calm.latencies, attacked.latencies, strict=True)
    ]
    before, highest, after = rss_bytes
    left = in_flight()
    problems = [f"{left} calls are still in flight"] if left else []
    if highest - before > RSS_GROWTH_BYTES_MAX:
        problems.append(f"the ingress has grown by {(highest - before) >> 20} MiB")
    return {
        "p99_calm_ms": calm.median_ms(0.99),
        "p99_attacked_ms": attacked.median_ms(0.99),
        "p99_ratio": round(statistics.median(ratios), 2),
        "p99_ratios": [round(ratio, 2) for ratio in ratios],
        "p99_within": statistics.median(ratios) <= P99_RATIO_MAX,
        "p50_calm_ms": calm.median_ms(0.5),
        "p50_attacked_ms": attacked.median_ms(0.5),
        "p90_calm_ms": calm.median_ms(0.9),
        "p90_attacked_ms": attacked.median_ms(0.9),
        "max_attacked_ms": _milliseconds(max(max(latencies) for latencies in attacked.latencies)),
        "ingress_cpu_calm": calm.cpu_share(),
        "ingress_cpu_attacked": attacked.cpu_share(),
        "rss_before_mib": round(before / 2**20, 1),
        "rss_growth_mib": round((highest - before) / 2**20, 1),
        "rss_growth_after_mib": round((after - before) / 2**20, 1),
        "problems": problems,
        "outcomes": outcomes,
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _settings() -> Settings:
    names = [*ATTACKS, *CROWDS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each half of a round")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    return Settings(arguments.attacks, arguments.rounds, arguments.seconds, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
