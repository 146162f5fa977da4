"""The command line: ``pyserve run``, ``status``, ``call``, and what ``pyserve --help`` lists."""

from __future__ import annotations

import sys

from pyserve.garbage import importing

# The exit status that a shell reports for a program that SIGINT ended.
INTERRUPTED = 130

# Not that of typing, as in the package above.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["INTERRUPTED", "main"]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    try:
        # Importing is most of what a command does in its first moments; Ctrl-C may come then too.
        with importing():
            from pyserve.cli.commands import run_commands

        run_commands(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
