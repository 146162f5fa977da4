"""One wheel and an interpreter are all that the package needs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyserve

_PACKAGE = Path(pyserve.__path__[0])
# What can start a program; of `os` the names that begin so.
_MODULES = {"subprocess", "pty", "multiprocessing"}
# They run this interpreter with a command of pyserve: `deploy` for REST, `run` after an edit, the
# controller of a program's mesh, the child that steps for a replica.
_OWN_COMMANDS = {
    "control/server/rest.py",
    "cli/reloading.py",
    "driver/own_mesh.py",
    "stepping/process_driver.py",
}
# py-spy, which nothing but `pyserve profile` needs, and which says so where it is absent.
_PROFILER = {"cli/diagnosis.py"}
# The server of an engine, started by the user's command, and the process that ends it with its
# replica.
_ENGINES = {"llm/engines/child.py", "llm/engines/watch.py"}
_OF_OS = ("exec", "spawn", "posix_spawn", "system", "popen")


def _starters(path: Path) -> set[str]:
    """Return what of a file can start a program."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.split(".")[0] in _MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _MODULES:
            found.add(str(node.module))
        elif isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if (of == "os" and node.attr.startswith(_OF_OS)) or node.attr.startswith(
                "create_subprocess"
            ):
                found.add(f"{of}.{node.attr}")
    return found


@pytest.mark.parity("S-71")
def test_programs_are_started_by_launchers_and_by_those_that_run_pyserve_again() -> None:
    found = {
        str(path.relative_to(_PACKAGE)): starters
        for path in _PACKAGE.rglob("*.py")
        if (starters := _starters(path))
    }

    others = {name for name in found if not name.startswith("launch/")}

    assert found.keys() - others, "there are launchers"
    assert others == _OWN_COMMANDS | _PROFILER | _ENGINES, found


@pytest.mark.parity("S-71")
def test_the_package_needs_no_program_to_be_imported() -> None:
    code = "import pyserve\nfor name in pyserve.__all__:\n    getattr(pyserve, name)\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
