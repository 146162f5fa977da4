"""``pyserve profile`` on a replica that works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.mesh.commands import Foreground, foreground, in_flight, pyserve
from tests.mesh.start.processes import status_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
_TIMEOUT_S = 50.0
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
needs_ptrace = pytest.mark.skipif(
    os.geteuid() != 0 and _SCOPE.exists() and _SCOPE.read_text().strip() != "0",
    reason="kernel.yama.ptrace_scope lets nobody look at other processes",
)


@pytest.fixture
def running(mesh_environment: dict[str, str]) -> Iterator[Foreground]:
    with foreground(mesh_environment, "tests.mesh.cli.busy:app") as found:
        yield found


def replica(environment: dict[str, str]) -> str:
    (found,) = status_of(environment)["applications"]["default"]["deployments"]["Busy"]["replicas"]
    name: str = found["replica_id"]
    return name


@needs_ptrace
@pytest.mark.parity("G-84")
def test_a_flame_graph_names_the_code_that_takes_the_time(
    mesh_environment: dict[str, str], running: Foreground, tmp_path: Path
) -> None:
    file, enough = tmp_path / "busy.svg", tmp_path / "enough"
    with ThreadPoolExecutor(1) as callers:
        call = callers.submit(
            httpx.get,
            f"http://{running.address}/?until={enough}",
            timeout=_TIMEOUT_S,
            trust_env=False,
        )
        try:
            wait_until(lambda: 1 == in_flight(mesh_environment))
            done = pyserve(
                "profile",
                replica(mesh_environment),
                "--seconds=2",
                f"--output={file}",
                environment=mesh_environment,
            )
        finally:
            enough.touch()
        assert 200 == call.result().status_code, "it serves on"
    assert 0 == done.returncode, done.stderr
    assert str(file) in done.stdout
    assert "add_up (busy.py:" in file.read_text()


@needs_ptrace
@pytest.mark.parity("G-84")
def test_stacks_say_what_a_replica_does_now(
    mesh_environment: dict[str, str], running: Foreground
) -> None:
    del running
    done = pyserve("profile", replica(mesh_environment), "--stacks", environment=mesh_environment)
    assert 0 == done.returncode, done.stderr
    assert "MainThread" in done.stdout


def test_what_cannot_be_profiled_is_said(
    mesh_environment: dict[str, str], running: Foreground
) -> None:
    del running
    unknown = pyserve("profile", "Busy#0", environment=mesh_environment)
    name = replica(mesh_environment)
    assert 1 == unknown.returncode
    assert f"there is no replica 'Busy#0'; there is: {name}" in unknown.stderr
    elsewhere = {**mesh_environment, "PYSERVE_NODE_ID": "another"}
    other = pyserve("profile", name, environment=elsewhere)
    assert 1 == other.returncode
    assert "and this is another; run the command there" in other.stderr
