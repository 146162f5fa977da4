"""How long an edit takes to be served, beside what a process takes to start on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.mesh import RunningMesh, running_mesh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

_CONSTRUCTOR_S = 0.3
_EDITS = 3
# The promise for a machine that is otherwise idle.
_BESIDE_CONSTRUCTOR_S_MAX = 1.0
# On a busy one: starts of a replica's process, one after the other. The next one is there before it
# is needed, so a reload has not even one of them.
_STARTS_MAX = 2.0
_APP = """import time

import pyserve


@pyserve.deployment
class Page:
    def __init__(self) -> None:
        time.sleep({constructor_s})

    def __call__(self) -> str:
        return "{text}"


app = Page.bind()
"""


@pytest.mark.long
@pytest.mark.parity("G-61")
def test_an_edit_is_there_in_less_than_a_second_beside_the_constructor(tmp_path: Path) -> None:
    """The best of several, since others use the machine too; what is slow is slow each time."""
    _write(tmp_path, "before")
    with running_mesh("page:app", "--reload", folder=tmp_path) as mesh:
        took_s, starts_s = [], []
        for number in range(_EDITS):
            starts_s.append(_start_s())
            took_s.append(_edit_s(tmp_path, mesh, f"edit {number}"))
            # The next edit meets a mesh at rest.
            wait_until(lambda: mesh.output().count("restarted Page in") == len(took_s))

    assert _CONSTRUCTOR_S <= min(took_s)
    allowed_s = max(_BESIDE_CONSTRUCTOR_S_MAX, _STARTS_MAX * max(starts_s))
    assert min(took_s) - _CONSTRUCTOR_S < allowed_s, (took_s, starts_s)


def _write(folder: Path, text: str) -> None:
    (folder / "page.py").write_text(_APP.format(constructor_s=_CONSTRUCTOR_S, text=text))


def _edit_s(folder: Path, mesh: RunningMesh, text: str) -> float:
    """Return the time from an edit to the first answer of the new version."""
    with httpx.Client(base_url=f"http://{mesh.address}", timeout=30) as client:
        begun = time.monotonic()
        _write(folder, text)
        wait_until(lambda: client.get("/").text == text)
        return time.monotonic() - begun


def _start_s() -> float:
    """Return how long a process takes that imports what a replica does."""
    begun = time.monotonic()
    command = [sys.executable, "-P", "-c", "import pyserve.replica.process"]
    subprocess.run(command, check=True, timeout=60)
    return time.monotonic() - begun
