"""Programs that are run as their users run them: as scripts, and by ``pyserve run``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.mesh import running_mesh

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 50.0


def printed(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process, which starts a mesh of its own."""
    done = subprocess.run(
        [sys.executable, f"tests/ray_programs/programs/{program}.py"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done


@pytest.mark.parity("G-56")
def test_one_application_runs_in_local_testing_mode_and_in_a_mesh():
    done = printed("local_development")

    expected = ["local: Hello, Ray! Hello, Ray!", "mesh: Hello, mesh! Hello, mesh!"]
    assert [*expected, "RUNNING", "False"] == done.stdout.splitlines()


def test_logs_requests_and_applications_can_be_watched():
    """The lines of replicas are those of their loggers, in the terminal of the program."""
    done = printed("monitoring")

    expected = ["Hello Ada, Model speaking", "123-234", "1"]
    assert [*expected, "RUNNING Model=HEALTHY Router=HEALTHY"] == done.stdout.splitlines()
    logged = [line.partition("] ")[2] for line in done.stderr.splitlines()]
    lines = [re.search(r"ray\.serve \[(.+)\]: (.*)", line) for line in logged]
    named = [line.groups() for line in lines if line is not None]
    assert [("123-234", "the model got Ada"), (named[-1][0], "loud line")] == named
    (record,) = [json.loads(line) for line in logged if line.startswith("{")]
    assert ("Hello world!", "app", "Router") == (
        record["message"],
        record["application"],
        record["deployment"],
    )


@pytest.mark.parity("G-58")
def test_the_command_line_gives_a_builder_its_arguments():
    target = "tests.ray_programs.programs.app_builder:typed_app_builder"
    with running_mesh(target, "message=Hello", "repeat=2") as mesh:
        assert "Hello Hello" == httpx.get(f"http://{mesh.address}/", timeout=_TIMEOUT_S).text
