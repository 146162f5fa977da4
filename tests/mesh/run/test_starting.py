"""Calls of deployments that start, by deployments that start with them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT, foreground, pyserve

# Several processes start one after the other, which takes its time on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_TIMEOUT_S = 50.0


def test_a_lifespan_may_call_a_deployment_that_still_starts(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    """It waits within its own timeout, and the error says what for."""
    sign = f"sign={tmp_path / 'sign'}"
    with (
        foreground(mesh_environment, "tests.mesh.apps.waiting:build", sign) as running,
        urllib.request.urlopen(f"http://{running.address}/", timeout=_TIMEOUT_S) as answer,
    ):
        refused, value = json.load(answer)
    assert 2 == value
    assert "default/Late: the deadline passed before a replica was free" in refused


def test_deployments_that_wait_for_each_other_end_with_an_error_that_says_so(
    mesh_environment: dict[str, str],
) -> None:
    run = ("run", "tests.mesh.apps.waiting:circle", "--address", "127.0.0.1:0")
    done = pyserve(*run, environment=mesh_environment)
    assert 1 == done.returncode, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    first, second = ("One", "Other") if "deployment 'One'" in error else ("Other", "One")
    assert f"deployment '{first}' failed: replica {first}#" in error
    assert "was not ready after 4 s" in error
    assert f"{second} had no replica yet: deployments that call each other" in error


def test_a_deploy_that_takes_too_long_names_what_is_missing(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    script = f"""if True:
        import pyserve
        from tests.mesh.apps.waiting import Late
        pyserve.start(address="127.0.0.1:0")
        try:
            pyserve.run(Late.bind({str(tmp_path / "never")!r}), timeout_s=1.0)
        except pyserve.errors.MeshUnavailable as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=mesh_environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert "deploying 'default' took longer than 1 s; not ready: Late\n" == done.stdout, done.stderr
