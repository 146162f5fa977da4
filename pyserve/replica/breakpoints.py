"""``breakpoint()`` in a replica: raises with advice, instead of ``BdbQuit`` ending the call."""

from __future__ import annotations

import sys
from typing import Any

from pyserve.config.debuggers import names_debugger
from pyserve.errors import WrongMoment


def explain_breakpoints() -> None:
    """Make ``breakpoint()`` raise with advice if a debugger would lack a terminal.

    Nothing changes for a debugger that has set its own hook, for ``PYTHONBREAKPOINT``, and for a
    replica with a terminal.
    """
    if sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _break


def _break(*arguments: Any, **options: Any) -> Any:
    # Read at each call, as Python's own hook does: user code may set it.
    if names_debugger() or (sys.stdin is not None and sys.stdin.isatty()):
        return sys.__breakpointhook__(*arguments, **options)
    raise WrongMoment(
        "breakpoint() needs a terminal, and a replica has none: use `pyserve run module:app "
        "--in-process`, or name a debugger that listens at a port in PYTHONBREAKPOINT"
    )
