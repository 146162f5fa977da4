"""The last lines of a replica are shown after its death."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mesh.logs.test_request_ids import ask
from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-81")]
PYSERVE = str(Path(sys.executable).with_name("pyserve"))


def pyserve(mesh: RunningMesh, *arguments: str) -> str:
    environment = {**os.environ, "PYSERVE_HOME": str(mesh.home)}
    done = subprocess.run(
        [PYSERVE, *arguments],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_the_last_lines_of_a_replica_that_died_are_shown_by_status_and_logs() -> None:
    with running_mesh("tests.mesh.logs.apps:app") as mesh:
        before = json.loads(pyserve(mesh, "status", "--json"))
        (shop,) = before["applications"]["default"]["deployments"]["Shop"]["replicas"]
        died = shop["replica_id"]
        ask(mesh, "die now", "r-1")
        wait_until(lambda: "ENDED" in pyserve(mesh, "status"))

        text = pyserve(mesh, "status")
        assert f"    {died}  ENDED 2" in text
        assert "exit code 3" in text
        assert "\n      last words\n" in text
        assert "shop [r-1]: shop die now\n" in text
        found = json.loads(pyserve(mesh, "status", "--json"))
        (ended,) = found["applications"]["default"]["deployments"]["Shop"]["ended"]
        assert (died, "last words") == (ended["replica_id"], ended["lines"][-1])

        lines = pyserve(mesh, "logs", died).splitlines()
        assert f"[{died}] last words" == lines[-1]
        assert all(line.startswith(f"[{died}]") for line in lines)
