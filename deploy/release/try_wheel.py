"""Installs a wheel into a new environment, and serves digits with it.

``python deploy/release/try_wheel.py WHEEL`` ends with 0 if the digits are recognised.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the wheel of the command line; return the exit code of the demonstration."""
    parser = argparse.ArgumentParser(prog="try_wheel.py", description=__doc__)
    parser.add_argument("wheel", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / "bin" / "python")
        packages = [str(options.wheel.resolve()), "numpy", "scikit-learn"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        # Away from this tree, whose `pyserve` would be imported in place of the wheel's.
        shutil.copytree(ROOT / "services", folder / "services")
        demonstration = [python, "-m", "services.digits.demo"]
        return subprocess.run(demonstration, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
