"""``make bench NAME=control-scale``: a controller with thousands of replicas.

A controller, as ``pyserve start`` runs it (its state in SQLite, its ingresses elsewhere), gets
4 000 replicas that join by themselves and 200 routers that watch, all of them in the Rust program
``pyserve-meshload``; then replicas leave, come, and say other things of themselves. The simulator
takes a processor of its own, so what is measured of the controller is its processor time.
Exit code: 0 when every bar of ``BARS`` is met, 1 when one is missed or a change got lost.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.cpu import parse_stat
from benchmarks.generator import GeneratorError, find_generator
from benchmarks.machine import ROOT, stamp
from pyserve.control.discovery import MeshRecord

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 60.0
# Joining thousands, and what comes after the measurement.
_OVERRUN_S = 300.0
_MIB = 1 << 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

BARS: Mapping[str, float] = {
    "cpu_cores": 1.0,
    "rss_max_mib": 1024.0,
    "delay_p99_ms": 100.0,
    "bytes_per_change": 1024.0,
}
"""The largest value of each figure."""


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    replicas: int
    deployments: int
    watchers: int
    rate: float
    seconds: float
    idle_s: float
    output: Path
    program: Path | None
    profile: Path | None


@dataclass(frozen=True)
class Sample:
    """The resources that a process has used at one moment."""

    time_s: float
    cpu_s: float
    rss_mib: float
    rss_max_mib: float

    @classmethod
    def of(cls, pid: int) -> Sample:
        """Read it from ``/proc``. One that has ended keeps its time, and has no memory."""
        folder = Path("/proc") / str(pid)
        reading = parse_stat((folder / "stat").read_text(encoding="utf-8"))
        status = (folder / "status").read_text(encoding="utf-8")
        high = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        return cls(
            time.monotonic(),
            reading.cpu_ticks / _TICKS_PER_S,
            reading.rss_bytes / _MIB,
            int(next(high, "0")) / 1024,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the report; return the exit code."""
    settings = _settings(arguments)
    report = measure(settings)
    problems = problems_of(report)
    report = {
        **report,
        "problems": problems,
        "bars": dict(BARS),
        "settings": {
            key: value for key, value in asdict(settings).items() if not isinstance(value, Path)
        },
        "machine": stamp(),
    }
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    settings.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
    print(f"report: {settings.output}")
    return 1 if problems else 0


def problems_of(report: Mapping[str, object]) -> list[str]:
    """Return which bars are missed, and what else went wrong, a line each."""
    problems = []
    for name, most in BARS.items():
        value = report[name]
        assert isinstance(value, (int, float))
        if value > most:
            problems.append(f"{name} is {value:.1f}, at most {most:g}")
    if report["missing"]:
        problems.append(f"{report['missing']} changes did not reach every watcher")
    if report["broken"]:
        problems.append(f"{report['broken']} streams broke: {report['broken_why']}")
    if not report["changes"]:
        problems.append("no change was seen by every watcher")
    return problems


def measure(settings: Settings) -> dict[str, object]:
    """Run a controller and the simulator; return what both say.

    Raises:
        GeneratorError: one of them did not start, or came to no report.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pyserve-scale-", dir="/tmp") as home,
        _controller(Path(home), settings.profile) as record,
    ):
        samples: dict[str, Sample] = {"begun": Sample.of(record.pid)}
        simulated = _simulate(settings, record, samples)
    cores = {
        phase: _cores(samples[phase], samples[end])
        for phase, end in (("joining", "idle"), ("idle", "changing"), ("measuring", "measured"))
    }
    return {
        "cpu_cores": cores["measuring"],
        "cpu_cores_idle": cores["idle"],
        "cpu_cores_joining": cores["joining"],
        "rss_max_mib": samples["measured"].rss_max_mib,
        "rss_empty_mib": samples["begun"].rss_mib,
        "rss_joined_mib": samples["idle"].rss_mib,
        **simulated,
    }


def _cores(begin: Sample, end: Sample) -> float:
    return (end.cpu_s - begin.cpu_s) / max(end.time_s - begin.time_s, 1e-9)


@contextmanager
def _controller(home: Path, profile: Path | None) -> Iterator[MeshRecord]:
    """Start a controller that is reached by TCP, as from other machines; end it."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PYSERVE_")
    }
    environment |= {"PYSERVE_HOME": str(home), "PYSERVE_ADVERTISE_HOST": "127.0.0.1"}
    profiled = () if profile is None else ("-m", "cProfile", "-o", str(profile))
    with (home / "controller.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *profiled, "-m", "pyserve.control", "--persistent"],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=ROOT,
        )
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT_S)
        line = process.stdout.readline().decode() if readable else ""
        try:
            record = MeshRecord.from_json(line)
        except ValueError as error:
            said = (home / "controller.log").read_text(encoding="utf-8", errors="replace")
            text = f"the controller did not start: {line or error}\n{said}"
            raise GeneratorError(text) from error
        yield record
    finally:
        process.terminate()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _simulate(
    settings: Settings, record: MeshRecord, samples: dict[str, Sample]
) -> Mapping[str, object]:
    program = settings.program or find_generator(name="pyserve-meshload")
    command = [
        *(str(program), "--controller", record.controller_tcp),
        *("--token-file", record.token_file, "--pyserve-version", record.version),
        *("--replicas", str(settings.replicas), "--deployments", str(settings.deployments)),
        *("--watchers", str(settings.watchers), "--rate", str(settings.rate)),
        *("--duration-s", str(settings.seconds), "--idle-s", str(settings.idle_s)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    overrun = threading.Timer(settings.seconds + _OVERRUN_S, process.kill)
    overrun.start()
    report: Mapping[str, object] = {}
    own: dict[str, Sample] = {}
    try:
        for line in process.stdout:
            entry = json.loads(line)
            if "event" in entry:
                samples[entry["event"]] = Sample.of(record.pid)
                own[entry["event"]] = Sample.of(process.pid)
                print(entry["event"], flush=True)
            else:
                cores = _cores(own["measuring"], own["measured"])
                report = {**entry, "simulator_cpu_cores": cores}
        process.wait()
    finally:
        overrun.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
    if "changes" not in report:
        raise GeneratorError(f"no report (exit code {process.returncode}): {' '.join(command)}")
    return report


def _settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_scale", description=__doc__)
    parser.add_argument("--replicas", type=int, default=4000)
    parser.add_argument("--deployments", type=int, default=1, help="that the replicas belong to")
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=400.0, help="changes a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--idle-s", type=float, default=10.0, help="without a change, before them")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results" / "control_scale.json"
    )
    parser.add_argument("--program", type=Path, help="the simulator, if it is not below target")
    parser.add_argument("--profile", type=Path, help="write a profile of the controller (cProfile)")
    options = parser.parse_args(arguments)
    if min(options.replicas, options.deployments, options.watchers) < 1:
        parser.error("--replicas, --deployments and --watchers must be at least 1")
    if options.rate <= 0 or options.seconds <= 0:
        parser.error("--rate and --seconds must be more than 0")
    return Settings(**vars(options))


if __name__ == "__main__":
    sys.exit(main())
