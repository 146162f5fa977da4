"""``python -m pyserve.cli.loader``: imports applications in a process of its own.

A module that is imported once stays as it was, so each load of ``pyserve run --reload`` has its
own process. It reads what to load from its standard input, as JSON, and writes what it found to
the descriptor that it is given; what user code prints goes to standard error. Until then it waits,
with everything imported that is not the user's.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

import pyserve.config.files  # noqa: F401  # What reads applications would take its time later.
from pyserve.api.sources import own_modules
from pyserve.cli.applications import file_of, load_request
from pyserve.cli.commands import CommandFailed
from pyserve.errors import PyserveError


def marks_of(file: Path) -> list[int]:
    """Return what tells a file from what it was before; [] for one that is not there."""
    try:
        state = file.stat()
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns]


def main() -> int:
    """Load what the standard input says, and report."""
    if not (text := sys.stdin.buffer.read()):
        return 0  # Nothing is to be loaded any more.
    asked = json.loads(text)
    found: dict[str, Any] = {"request": "", "error": "", "traceback": ""}
    try:
        file = file_of(asked["target"], asked["arguments"], asked["name"], asked["route_prefix"])
        request = load_request(file)
        found["request"] = base64.b64encode(request.SerializeToString()).decode()
    except click.UsageError as error:
        found["error"] = error.format_message()
    except CommandFailed as error:
        found |= {"error": str(error), "traceback": error.traceback}
    except PyserveError as error:
        found["error"] = str(error)
    here = Path.cwd()
    files = [file.absolute() for file in own_modules().values()]
    found["files"] = {str(each): marks_of(each) for each in files if each.is_relative_to(here)}
    with os.fdopen(int(sys.argv[1]), "w") as report:
        json.dump(found, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
