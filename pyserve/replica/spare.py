"""A process with a replica's imports done, which waits to be told which replica to become.

Until then it has no thread, no loop and no user code, and has read no setting, so it then behaves
as if it had been started that way. ``pyserve.launch.spares`` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Sequence

from pyserve.config import change_environment

_READ_BYTES = 65536
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_OUTPUTS = (1, 2)


def replica_arguments(arguments: Sequence[str]) -> list[str] | None:
    """Return the arguments of the replica that this process is, or becomes.

    With ``--spare-fd`` it waits until that pipe says so; ``None``: its other end was closed first.

    Args:
        arguments: Of the command line.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--spare-fd", type=int)
    options, others = parser.parse_known_args(arguments)
    if options.spare_fd is None:
        return others
    with contextlib.suppress(ImportError):  # Not available on every platform.
        import uvloop  # noqa: F401
    return _become(options.spare_fd)


def _become(descriptor: int) -> list[str] | None:
    """Wait for one line of JSON, apply its settings, and return the arguments in it."""
    text = b""
    while not text.endswith(b"\n"):
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            return None
        text += chunk
    os.close(descriptor)
    told = json.loads(text)
    if told["output"]:
        # Made by the launcher, which follows it.
        output = os.open(told["output"], _APPEND)
        for each in _OUTPUTS:
            os.dup2(output, each)
        os.close(output)
    change_environment(told["set"], told["unset"])
    if told["directory"]:
        os.chdir(told["directory"])
    arguments: list[str] = told["arguments"]
    return arguments
