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
from pyserve.api.modules import own_modules
from pyserve.cli.applications import file_of, load_request
from pyserve.cli.commands import CommandFailed
from pyserve.cli.target import Asked, folder_of
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
    asked = Asked(**json.loads(text))
    found: dict[str, Any] = {"request": "", "error": "", "traceback": ""}
    try:
        request = load_request(file_of(asked), asked.app_dir)
        found["request"] = base64.b64encode(request.SerializeToString()).decode()
    except click.UsageError as error:
        found["error"] = error.format_message()
    except CommandFailed as error:
        found |= {"error": str(error), "traceback": error.traceback}
    except PyserveError as error:
        found["error"] = str(error)
    places = (Path.cwd(), folder_of(asked.app_dir, asked.runtime_env.get("working_dir")))
    files = [file.absolute() for file in own_modules().values()]
    watched = [each for each in files if any(map(each.is_relative_to, places))]
    found["files"] = {str(each): marks_of(each) for each in watched}
    with os.fdopen(int(sys.argv[1]), "w") as report:
        json.dump(found, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
