"""``make bench NAME=control-scale``: what it calls a problem, and a small run of all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.control_scale import BARS, Sample, main, problems_of

GOOD = {
    **{name: most / 2 for name, most in BARS.items()},
    "changes": 100,
    "missing": 0,
    "broken": 0,
    "broken_why": "",
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        *(({name: most * 2}, f"{name} is {most * 2:.1f}, at most") for name, most in BARS.items()),
        ({"missing": 3}, "3 changes did not reach every watcher"),
        ({"broken": 1, "broken_why": "reset"}, "1 streams broke: reset"),
        ({"changes": 0}, "no change was seen"),
    ],
)
def test_each_bar_that_is_missed_is_a_problem(change: dict[str, object], problem: str) -> None:
    (found,) = problems_of({**GOOD, **change})
    assert found.startswith(problem)


def test_what_meets_every_bar_is_none() -> None:
    assert [] == problems_of(GOOD)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parity("S-89")
def test_every_change_reaches_every_router(simulator: Path, tmp_path: Path) -> None:
    """Real processes and streams; the delays of a busy machine are not judged here."""
    output = tmp_path / "report.json"
    sizes = ["--replicas", "100", "--watchers", "10", "--rate", "40", "--seconds", "2"]
    main([*sizes, "--idle-s", "0.5", "--program", str(simulator), "--output", str(output)])

    report = json.loads(output.read_text(encoding="utf-8"))
    assert (0, 0) == (report["missing"], report["broken"]), report
    assert report["changes"] > 50
    assert report["bytes_per_change"] < BARS["bytes_per_change"]
    assert report["rss_max_mib"] < BARS["rss_max_mib"]
    # Nothing is said of replicas that have not changed.
    assert report["replicas_named_per_change"] < 1.2


def test_a_process_that_has_ended_keeps_its_time() -> None:
    """The simulator may be gone when its last line is read."""
    with subprocess.Popen([sys.executable, "-c", "sum(range(3_000_000))"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        sample = Sample.of(process.pid)
    assert sample.cpu_s > 0
    assert sample.rss_max_mib == 0
