"""Installs a wheel with the newest, and with the oldest, of what it requires, and tries both.

``python -m deploy.release.try_dependencies WHEEL`` ends with 0 if ``smoke.py`` is content with
each. Give ``--only oldest`` for one of them, and ``--python`` for another interpreter than this
one; the oldest grpcio has wheels for CPython 3.11 to 3.13.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.release.lower_gencode import floors

_SMOKE = Path(__file__).with_name("smoke.py")
_KINDS = ("newest", "oldest")
_EXTRA = "proto"


def constraints() -> str:
    """Return pip's constraints: of each direct dependency the oldest version."""
    # An extra may ask for a newer one.
    oldest = {name: floors(_EXTRA).get(name, version) for name, version in floors().items()}
    # A newer generator makes stubs that ask for a newer grpcio.
    oldest["grpcio-tools"] = oldest["grpcio"]
    return "".join(f"{name}=={version}\n" for name, version in oldest.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the wheel of the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="try_dependencies", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--only", choices=_KINDS)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args(arguments)
    failed = [
        kind
        for kind in _KINDS
        if options.only in (None, kind) and not _is_good(kind, options.wheel, options.python)
    ]
    for kind in failed:
        sys.stderr.write(f"{options.wheel} does not work with the {kind} dependencies\n")
    return 1 if failed else 0


def _is_good(kind: str, wheel: Path, interpreter: str) -> bool:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([interpreter, "-m", "venv", folder / "venv"], check=True)
        python = str(folder / "venv" / "bin" / "python")
        bounds: list[str] = []
        if kind == "oldest":
            file = folder / "oldest.txt"
            file.write_text(constraints(), encoding="utf-8")
            bounds = ["--constraint", str(file)]
        wanted = f"{wheel.resolve()}[{_EXTRA}]"
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *bounds, wanted], check=True)
        subprocess.run([*pip, "check"], check=True)
        subprocess.run([*pip, "list"], check=True)
        # Away from this tree, whose `pyserve` would be imported in place of the wheel's.
        return subprocess.run([python, _SMOKE], cwd=folder, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
