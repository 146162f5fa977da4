"""``pyserve.shutdown`` where there is nothing, or nothing any more, to shut down."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mesh.commands import ROOT
from tests.mesh.start.processes import standing

pytestmark = pytest.mark.slow
_TIMEOUT_S = 50.0
_HEAD = """
import os, signal, sys, threading
import pyserve
from tests.mesh.apps.small import Small
"""
_DEPLOY = "pyserve.run(Small.bind(), route_prefix=None)\n"
_OWN = 'pyserve.start(address="127.0.0.1:0")\n'
_KILL = "os.kill(pyserve.status().controller_pid, signal.SIGKILL)\n"
_ENDED = 'pyserve.shutdown()\nprint("nothing is left")\n'


def _run(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _HEAD + script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _check(found: subprocess.CompletedProcess[str]) -> None:
    assert (0, True) == (found.returncode, "nothing is left" in found.stdout), found.stderr


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(_ENDED, id="before there is one"),
        pytest.param(_OWN + _DEPLOY + _ENDED * 2, id="twice"),
        pytest.param(_OWN + _DEPLOY + _KILL + _ENDED * 2, id="after the controller's death"),
        pytest.param(
            _OWN
            + _DEPLOY
            + "others = [threading.Thread(target=pyserve.shutdown) for _ in range(4)]\n"
            + "[each.start() for each in others]\n"
            + _ENDED
            + "[each.join() for each in others]\n",
            id="from several threads",
        ),
    ],
)
def test_a_mesh_of_ones_own_that_is_not_there_is_no_error(
    script: str, mesh_environment: dict[str, str]
) -> None:
    found = _run(script, mesh_environment)

    _check(found)
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(_KILL, id="killed"),
        pytest.param(
            "import subprocess\n"
            "subprocess.run([sys.executable, '-m', 'pyserve', 'shutdown'], check=True)\n",
            id="shut down by another",
        ),
    ],
)
def test_a_mesh_of_others_that_has_ended_is_no_error(
    end: str, mesh_environment: dict[str, str]
) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-m", "pyserve.control"],
        cwd=ROOT,
        env=mesh_environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert controller.stdout is not None, "asked for"
        controller.stdout.readline()
        found = _run(_DEPLOY + end + _ENDED * 2, mesh_environment)
        controller.wait(_TIMEOUT_S)
    finally:
        controller.kill()
        controller.communicate()

    _check(found)
    assert "attached to the mesh" in found.stderr


def test_the_next_controller_is_asked_after_a_kill(
    mesh_environment: dict[str, str],
) -> None:
    """A mesh that stays outlives its controller, so doing nothing would leave it."""
    with standing(mesh_environment) as running:
        _check(_run(_DEPLOY + _KILL + _ENDED, mesh_environment))
        assert 0 == running.process.wait(_TIMEOUT_S)


def test_a_controller_that_is_named_and_not_there_is_an_error(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("ab" * 32)
    token.chmod(0o600)
    environment = {
        **mesh_environment,
        "PYSERVE_CONTROLLER": f"unix:{tmp_path}/nobody.sock",
        "PYSERVE_TOKEN_FILE": str(token),
    }

    found = _run(_ENDED, environment)

    assert "MeshUnavailable: shutting the mesh down" in found.stderr
    assert 1 == found.returncode
