"""``breakpoint()`` in a replica: says where it works, instead of ending the call by ``BdbQuit``."""

from __future__ import annotations

import sys
from typing import Any

from pyserve.config.debuggers import names_debugger
from pyserve.errors import WrongMoment


def explain_breakpoints() -> None:
    """Have ``breakpoint()`` raise with advice where nobody could answer the debugger.

    A debugger that has set a hook of its own, ``PYTHONBREAKPOINT``, and a replica that has a
    terminal keep what they have.
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
