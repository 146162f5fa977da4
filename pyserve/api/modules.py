"""Which modules other processes can import, and whether one is being imported."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

INGRESS_ATTRIBUTE = "__pyserve_ingress__"
"""What ``ingress`` leaves on a class; it has a ``source``."""


def is_importable(name: str, module: object) -> bool:
    """Say whether ``import`` in another process gives the same module.

    ``__main__`` has other names too, such as that of ``multiprocessing``'s children.
    """
    if not issubclass(type(module), ModuleType) or module is sys.modules.get("__main__"):
        return False
    return getattr(names_of(module).get("__spec__"), "name", None) == name


def names_of(module: object) -> dict[str, Any]:
    """Return the names of a module, without importing it if it waits for its first use."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


def is_being_imported() -> bool:
    """Say whether the caller runs for a module that will have more names when it is imported."""
    frame = sys._getframe(1)  # noqa: SLF001  # `inspect.stack` would read the source files.
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "<module>":
            name = frame.f_globals.get("__name__", "")
            return is_importable(name, sys.modules.get(name))
    return False
