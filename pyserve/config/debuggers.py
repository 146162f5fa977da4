"""What Python's own variables say about debuggers."""

import os


def names_debugger() -> bool:
    """Say whether ``PYTHONBREAKPOINT`` names what ``breakpoint()`` calls now."""
    return bool(os.environ.get("PYTHONBREAKPOINT"))
