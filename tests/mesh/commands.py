"""Runs the command line as a user does, with bounds."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 50.0


def pyserve(
    *arguments: str, environment: dict[str, str], timeout_s: float = _TIMEOUT_S, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "pyserve", *arguments],
        cwd=ROOT,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
