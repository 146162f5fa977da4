"""Ctrl-C while the command line is being imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyserve

_PROGRAM = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from pyserve.cli import main
main(["run", "tests.mesh.apps.small:app"])
"""


@pytest.mark.parametrize(
    "module", ["click", "pyserve.cli.commands", "pyserve.cli.run", "pyserve.driver.session"]
)
def test_ctrl_c_during_the_imports_is_quiet(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, module],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (130, "", "") == (done.returncode, done.stdout, done.stderr.strip())


def test_little_is_imported_before_ctrl_c_is_quiet() -> None:
    program = "import sys, pyserve.cli; print(*sys.modules)"
    command = [sys.executable, "-S", "-c", program]  # What site-packages add is not ours.
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(Path(pyserve.__path__[0]).parent)},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert not {"typing", "re", "click"} & set(done.stdout.split())
