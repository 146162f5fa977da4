"""Stubs that ``pyserve run`` misses: which .proto they are of, and what makes them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyserve.cli.proto import generate_all, proto_files, roots_of
from pyserve.cli.proto_roots import Roots, made_in, module_of

_ENDINGS = ("_pb2_grpc", "_pb2")
_NAME_IN_TEXT = re.compile(r"cannot import name '(\w+)'")


def missing_stubs(error: BaseException) -> str:
    """Return what to do about an import that failed for want of stubs; "" if it did not.

    Args:
        error: What the import raised.
    """
    module = _missing_module(error)
    return _not_generated(module) or _beyond_the_path(module) if module else ""


def _not_generated(module: str) -> str:
    ending = next((each for each in _ENDINGS if module.endswith(each)), "")
    if not ending:
        return ""
    *package, name = module.removesuffix(ending).split(".")
    for place in dict.fromkeys((str(Path.cwd()), *sys.path)):
        folder = Path(place, *package)
        # Dashes of a file's name are underscores in its module's.
        for file in sorted(folder.glob("*.proto")):
            made = folder / f"{name}{ending}.py"
            if file.stem.replace("-", "_") == name and not made.exists():
                shown = os.path.relpath(file)
                root = (
                    "" if Path(place).absolute() == Path.cwd() else f" -I {os.path.relpath(place)}"
                )
                return (
                    f"the stubs of {shown} are not generated; run `pyserve proto {shown}{root}`, "
                    f"or `pyserve run --proto`, which generates all that are missing"
                )
    return ""


def _beyond_the_path(module: str) -> str:
    """Return what to do if a folder has the module, or a file for it, but is not on the path."""
    path = {Path(each).resolve() for each in sys.path}
    for file in proto_files(Path()):
        made = made_in(file)
        for root in file.parents if made is None else [made]:
            stubs = ".".join(module_of(file, root).relative_to(root).parts)
            # Of a package the beginning is missing.
            has_it = f"{stubs}.".startswith(f"{module.removesuffix('_grpc')}.")
            if not has_it or root.resolve() in path:
                continue
            if made is not None:
                return (
                    f"the stubs of {file} are there, but their imports start in {root}, which is "
                    f"not on Python's path; run again with PYTHONPATH={root}"
                )
            if module.endswith(_ENDINGS):
                return (
                    f"the stubs of {file} are not generated; run `pyserve proto -I {root} {file}`, "
                    f"then this again with PYTHONPATH={root}"
                )
    return ""


def _missing_module(error: BaseException) -> str:
    """Return the module that an import has not found, also as an attribute of a package."""
    if not isinstance(error, ImportError) or error.name is None:
        return ""
    if isinstance(error, ModuleNotFoundError):
        return error.name
    # An attribute of the exception since CPython 3.12; before, only its text has the name.
    found = _NAME_IN_TEXT.match(error.msg)
    return f"{error.name}.{found[1]}" if found else ""


def generate_missing() -> None:
    """Generate the stubs of .proto files below the working directory that lack or outlive them.

    Raises:
        CommandFailed: Some cannot be generated.
    """
    # Where imports start is seen from all of them.
    files = list(proto_files(Path()))
    if not any(map(_is_stale, files)):
        return
    roots = roots_of(files)
    if stale := [file for file in files if _is_stale(file) or _was_named(file, roots)]:
        generate_all(stale, roots)


def _is_stale(file: Path) -> bool:
    # Folders have underscores for dashes, but not those where imports start.
    for messages in (module_of(file, root) for root in file.parents):
        made = [messages.with_name(f"{messages.name}{ending}.py") for ending in ("", "_grpc")]
        if all(each.exists() for each in made):
            return min(each.stat().st_mtime_ns for each in made) < file.stat().st_mtime_ns
    return True


def _was_named(file: Path, roots: Roots) -> bool:
    """Tell whether others import a file by another name than when it was generated."""
    found = roots.of(file)
    return found != roots.given and made_in(file) != found[0]
