"""The processes that a benchmark has started end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.guarded import guarded
from tests.support.waiting import wait_until

_ROOT = Path(__file__).resolve().parents[2]
# Has a child in its group, as LitServe has workers, and prints their numbers.
_FAMILY = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""
_BENCHMARK = """
import os, signal, sys
from benchmarks.guarded import guarded
with guarded([sys.executable, "-c", sys.argv[1]], os.environ):
    signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_all_of_it_ends_with_a_benchmark_that_is_cut_off(how: signal.Signals) -> None:
    command = [sys.executable, "-c", _BENCHMARK, _FAMILY]
    with subprocess.Popen(
        command,
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as benchmark:
        assert benchmark.stdout is not None
        family = [int(pid) for pid in benchmark.stdout.readline().split()]
        assert len(family) == 2
        # To the whole group, as a terminal or a runner sends it.
        os.killpg(benchmark.pid, how)
        wait_until(lambda: not any(map(_runs, family)), what="nothing is left of it")


def test_all_of_it_ends_with_the_block(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"import sys; sys.stdout = open({str(told)!r}, 'w')\n{_FAMILY}"
    with guarded([sys.executable, "-c", script], os.environ) as guard:
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
        assert guard.poll() is None
    assert not any(_runs(int(pid)) for pid in told.read_text().split())
    assert guard.returncode is not None


def test_the_guard_ends_with_the_status_of_its_command() -> None:
    with guarded([sys.executable, "-c", "raise SystemExit(3)"], os.environ) as guard:
        assert 3 == guard.wait(30)


def _runs(pid: int) -> bool:
    """Say whether a process runs; one that waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
