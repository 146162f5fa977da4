"""Modules that other processes can import, and the source files that an application depends on.

Dependencies are read from the import statements of files, so an import inside a function counts
too. An import by a name that is known only at run time cannot be found. Therefore a module that no
import statement of any application leads to counts as a dependency of every application.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
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


def own_modules() -> dict[str, Path]:
    """Return the files of the user's modules that this process has imported, by module.

    Installed packages and the standard library do not change under a running mesh; pyserve's own
    version is compared elsewhere.
    """
    fixed = tuple(
        str(Path(place)) + os.sep
        for place in (sys.prefix, sys.base_prefix, sys.exec_prefix, Path(__file__).parent.parent)
    )
    return {
        name: Path(file)
        for name, module in sorted(sys.modules.copy().items())
        if isinstance(file := getattr(module, "__file__", None), str)
        and name != "__main__"
        and not file.startswith(fixed)
    }


def digest(files: Iterable[tuple[str, Path]]) -> bytes:
    """Return a digest of path, size and time of change of files as they are now."""
    found = hashlib.sha256()
    for name, file in sorted(files):
        try:
            state = file.stat()
        except OSError:  # It was removed, or never was a file of its own.
            found.update(f"{name}\0{file}\0gone\n".encode())
        else:
            found.update(f"{name}\0{file}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return found.digest()


def modules_of(roots: Collection[str], imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that ``roots`` lead to, themselves included.

    Args:
        roots: Names of modules; those that ``imports`` lacks are left out.
        imports: Which modules each one imports.
    """
    found: set[str] = set()
    waiting = [name for name in roots if name in imports]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(imports[name] - found)
    return found


def imports_of(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Return which of ``modules`` each of them imports, the packages around them included."""
    return {
        name: {
            part
            for imported in _imported(name, file)
            for part in _with_packages(imported)
            if part in modules
        }
        | {part for part in _with_packages(name) if part in modules and part != name}
        for name, file in modules.items()
    }


def _with_packages(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _imported(name: str, file: Path) -> Iterator[str]:
    """Yield the names that a module's import statements have; not all need be modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # No source, or an unreadable one; importing the module reports what is wrong.
        return
    module = sys.modules.get(name)
    package = _package_of(name, module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parent = ".".join(parts[: len(parts) - node.level + 1])
                base = f"{parent}.{base}".strip(".")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _package_of(name: str, module: ModuleType | None) -> str:
    if module is not None and hasattr(module, "__path__"):
        return name
    return name.rpartition(".")[0]
