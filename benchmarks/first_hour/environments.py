"""An environment for each system: what is installed, how much that is, what its types say."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.first_hour.systems import MODULE, System

_INSTALL_TIMEOUT_S = 900.0
_MYPY_TIMEOUT_S = 900.0
_MARK = "# mistake"


class InstallError(Exception):
    """A system cannot be installed here; the text is the installer's."""


@dataclass(frozen=True)
class Lines:
    """Lines that are neither empty nor comments.

    Attributes:
        without_imports: Those that say what the service does.
        all: Imports too.
    """

    without_imports: int
    all: int


def count_lines(program: str) -> Lines:
    """Count the lines of a program."""
    written = {
        number
        for number, line in enumerate(program.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    imports = {
        number
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return Lines(len(written - imports), len(written))


def install(environment: Path, requirement: str) -> None:
    """Make a clean environment with ``requirement`` and nothing else.

    Raises:
        InstallError: It cannot be had.
    """
    shutil.rmtree(environment, ignore_errors=True)
    uv = str(Path(sys.executable).with_name("uv"))
    make = [uv, "venv", "--quiet", "--python", sys.executable, str(environment)]
    # Compiled as pip does, so that the first start is like the others.
    fill = [uv, "pip", "install", "--quiet", "--compile-bytecode"]
    for command in (make, [*fill, "--python", str(_python(environment)), requirement]):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise InstallError(done.stderr.strip())


def installed(environment: Path, requirement: str) -> dict[str, object]:
    """Return the version of what was asked for, and how many packages and bytes came."""
    (place,) = environment.glob("lib/python*/site-packages")
    distributions = list(metadata.distributions(path=[str(place)]))
    packages = {each.name: each.version for each in distributions}
    name = "pyserve-mesh" if requirement.endswith(".whl") else requirement.partition("==")[0]
    # Commands too, which are not below the same folder.
    files = {Path(each.locate()) for one in distributions for each in one.files or ()}
    return {
        "version": packages[name.partition("[")[0]],
        "packages": len(packages),
        "bytes": sum(each.lstat().st_size for each in files if "__pycache__" not in each.parts),
    }


def find_type_errors(system: System, environment: Path) -> dict[str, object]:
    """Let mypy --strict read the service and a caller, right and with two mistakes.

    The mistakes are an argument of another type, by the system's own handle or client, and a
    misspelt option.
    """
    right, misspelt = system.option
    lines = system.caller.splitlines(keepends=True)
    fine = "".join(line for line in lines if _MARK not in line)
    false_errors = _mypy(environment, system.program, fine)
    wrong = system.program.replace(right, misspelt)
    found = _mypy(environment, wrong, system.caller)
    argument = next((n for n, line in enumerate(lines, 1) if _MARK in line), 0)
    option = next(n for n, line in enumerate(wrong.splitlines(), 1) if misspelt in line)
    return {
        "argument": any(line.startswith(f"caller.py:{argument}: error") for line in found),
        "option": any(line.startswith(f"{MODULE}.py:{option}: error") for line in found),
        "has_caller": bool(lines),
        "false_errors": false_errors,
        "found": found,
    }


def _mypy(environment: Path, program: str, caller: str) -> list[str]:
    """Return the errors in both files, a line for each."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null"]
    command += ["--no-error-summary", "--python-executable", str(_python(environment))]
    files = {f"{MODULE}.py": program, **({"caller.py": caller} if caller else {})}
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [*command, *files],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_MYPY_TIMEOUT_S,
            check=False,
        )
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"mypy failed:\n{done.stdout}{done.stderr}")
    said = done.stdout.splitlines()
    return [line for line in said if line.startswith(tuple(files)) and ": error" in line]


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"
