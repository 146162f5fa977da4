"""A mesh runs with an empty PATH, and its processes start nothing but the interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.mesh import running_mesh

pytestmark = pytest.mark.slow
_TIMEOUT_S = 20.0
# Python imports it at its start, in every process that inherits the variable.
_HOOK = """
import os, sys

def note(event, arguments):
    if event in {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system"}:
        descriptor = os.open(os.environ["STARTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{arguments[0]}\\n".encode())
        os.close(descriptor)

sys.addaudithook(note)
"""


@pytest.mark.parity("S-71")
def test_nothing_but_the_interpreter_is_started(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_HOOK)
    started = tmp_path / "started"
    environment = {
        "PATH": "",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "STARTED": str(started),
    }

    with running_mesh("tests.mesh.ingress.apps:web", environment=environment) as mesh:
        assert 200 == httpx.get(f"http://{mesh.address}/", timeout=_TIMEOUT_S).status_code

    programs = started.read_text().splitlines()
    # The mesh's process and two replicas, at least.
    assert len(programs) >= 3
    assert {Path(sys.executable).resolve()} == {Path(each).resolve() for each in programs}
