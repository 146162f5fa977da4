"""Runs the load generator, the Rust program ``pyserve-loadgen``, and reads what it reports."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.machine import ROOT

# Beyond the planned time of a run: connecting, draining, reporting.
_OVERRUN_S = 60.0


class GeneratorError(Exception):
    """The generator is not there, or did not come to a report."""


def find_generator(folder: Path = ROOT / "target", name: str = "pyserve-loadgen") -> Path:
    """Return the program's path, a release build if there is one.

    Args:
        folder: Where cargo builds.
        name: Of the crate and its program.

    Raises:
        GeneratorError: It has not been built.
    """
    for profile in ("release", "debug"):
        program = folder / profile / name
        if program.is_file():
            return program
    raise GeneratorError(f"no {name} below {folder}: cargo build --release -p {name}")


def drive(
    program: Path,
    arguments: Sequence[str],
    *,
    seconds: float,
    warmup_s: float,
    on_moment: Callable[[str], None],
    prefix: Sequence[str] = (),
) -> Mapping[str, object]:
    """Run the generator and return its report.

    Args:
        program: See ``find_generator``.
        arguments: Target, path and load.
        seconds: Length of the measurement.
        warmup_s: Length of the load before it.
        on_moment: Called with ``measuring`` and ``measured`` when the measurement begins and ends.
        prefix: A command that runs the program, such as elsewhere.

    Raises:
        GeneratorError: It ended without a report, or took a minute longer than planned.
    """
    times = ("--duration-s", str(seconds), "--warmup-s", str(warmup_s))
    command = [*prefix, str(program), *arguments, *times, "--announce"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    overrun = threading.Timer(seconds + warmup_s + _OVERRUN_S, process.kill)
    overrun.start()
    try:
        lines = [_take(line, on_moment) for line in process.stdout]
        process.wait()
    finally:
        overrun.cancel()
        overrun.join()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
    reports = [line for line in lines if "requests" in line]
    if not reports:
        raise GeneratorError(f"no report (exit code {process.returncode}): {' '.join(command)}")
    return reports[0]


def _take(line: str, on_moment: Callable[[str], None]) -> Mapping[str, object]:
    entry: Mapping[str, object] = json.loads(line)
    if "event" in entry:
        on_moment(str(entry["event"]))
    return entry
