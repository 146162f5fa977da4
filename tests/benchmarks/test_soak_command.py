"""A short soak through a real mesh."""

import json
import subprocess
import sys

import pytest

from benchmarks.machine import ROOT


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_thousand_calls_and_a_kill_leave_nothing_behind(tmp_path):
    output = tmp_path / "soak.json"
    command = [sys.executable, "-m", "benchmarks.soak", "--calls", "2000", "--kills", "1"]
    done = subprocess.run(
        [*command, "--seed", "7", "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    report = json.loads(output.read_text())
    assert report["calls"] >= 2000
    assert 1 == report["kills"]
    assert [] == report["problems"]
    assert report["calls"] == sum(report["by_status"].values())
    assert {"OK", "CANCELLED", "DEADLINE_EXCEEDED"} <= report["by_status"].keys()
