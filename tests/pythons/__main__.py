"""``make pythons``: tests a wheel with each CPython that it is for.

``python -m tests.pythons WHEEL 3.12 3.13`` looks for these versions on PATH, at pyenv and at uv.
Each that it finds gets an environment with the wheel, and a copy of this tree without the package,
so that what is tested is what was installed.

Exit code: 0; 1 when a test fails, or an interpreter cannot install the wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = ROOT / "target" / "pythons"
ABSENT: Final = "SKIPPED, not on this machine"
PASSED: Final = "passed"
# What depends on the version of Python: annotations, tasks, tracebacks, pickles, forks, and that
# every package which pyserve needs is there for it. The rest of tests/mesh is about native code,
# which is the same library for all, and about processes that these folders have, too.
TESTED: Final = (
    "tests/unit",
    "tests/contract/aio",
    "tests/contract/fastapi",
    "tests/services",
    "tests/mesh/asgi",
    "tests/mesh/handles",
    "tests/mesh/multiplexing",
    "tests/mesh/plain",
    "tests/mesh/plain_http",
    "tests/mesh/run",
    "tests/mesh/servicers",
    "tests/docs/test_pages.py::test_a_page_does_what_it_shows[README]",
)
GROUPS: Final = ("build", "services", "test", "lint", "bench")
_PYTEST = ("-q", "-p", "no:cacheprovider", "-n", "3", "--dist", "loadfile", "-m", "not alone")
_INSTALL_TIMEOUT_S = 900.0
_TESTS_TIMEOUT_S = 3600.0


def main(arguments: list[str] | None = None) -> int:
    """Test the wheel of the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("versions", nargs="+", help="for example 3.13, or 3.13t")
    options = parser.parse_args(arguments)
    outcomes = {each: _outcome(options.wheel.resolve(), each) for each in options.versions}
    for version, outcome in outcomes.items():
        print(f"CPython {version}: {outcome}")
    return 0 if {*outcomes.values()} <= {PASSED, ABSENT} else 1


def find(version: str) -> str | None:
    """Return the path of an interpreter, or None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    # pyenv's own `python3.13` is there for versions that are switched on only.
    folders = [os.environ["PATH"], *map(str, sorted(pyenv.glob("*/bin")))]
    done = _uv("python", "find", "--no-project", "--system", version, path=os.pathsep.join(folders))
    return done.stdout.strip() if done.returncode == 0 else None


def copy_tree(folder: Path) -> None:
    """Copy what git knows of this tree, and what it would take, but for the package."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.split("\0"):
        source = ROOT / name
        if source.is_file() and not name.startswith("pyserve/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name)


def _outcome(wheel: Path, version: str) -> str:
    python = find(version)
    if python is None:
        return ABSENT
    print(f"--- CPython {version}: {python}", flush=True)
    place = PLACE / version
    shutil.rmtree(place, ignore_errors=True)
    copy_tree(place / "tree")
    environment = place / "environment"
    try:
        _install(wheel, python, environment)
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr)
        return "cannot install the wheel"
    done = subprocess.run(
        [environment / "bin" / "python", "-m", "pytest", *_PYTEST, *TESTED],
        cwd=place / "tree",
        # Some tests run modules of this tree in processes that leave the working directory out.
        env={**os.environ, "PYTHONPATH": str(place / "tree")},
        check=False,
        timeout=_TESTS_TIMEOUT_S,
    )
    return "failed" if done.returncode else PASSED


def _install(wheel: Path, python: str, environment: Path) -> None:
    _uv("venv", "--quiet", "--python", python, str(environment)).check_returncode()
    groups = [word for group in GROUPS for word in ("--group", group)]
    command = ("pip", "install", "--quiet", "--python", str(environment / "bin" / "python"))
    _uv(*command, "--constraint", "requirements.txt", *groups, str(wheel)).check_returncode()


def _uv(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "uv", "--no-python-downloads", *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": path or os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
