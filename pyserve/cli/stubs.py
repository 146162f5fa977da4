"""Stubs that ``pyserve run`` misses: which .proto they are of, and what makes them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyserve.cli.proto import generate_all, proto_files

_ENDINGS = ("_pb2_grpc", "_pb2")
_NAME_IN_TEXT = re.compile(r"cannot import name '(\w+)'")


def missing_stubs(error: BaseException) -> str:
    """Return what to do about an import that failed for want of stubs; "" if it did not.

    Args:
        error: What the import raised.
    """
    module = _missing_module(error)
    ending = next((each for each in _ENDINGS if module.endswith(each)), "")
    if not ending:
        return ""
    *package, name = module.removesuffix(ending).split(".")
    for place in dict.fromkeys((str(Path.cwd()), *sys.path)):
        folder = Path(place, *package)
        # Dashes of a file's name are underscores in its module's.
        for file in sorted(folder.glob("*.proto")):
            if file.stem.replace("-", "_") == name:
                shown = os.path.relpath(file)
                root = (
                    "" if Path(place).absolute() == Path.cwd() else f" -I {os.path.relpath(place)}"
                )
                return (
                    f"the stubs of {shown} are not generated; run `pyserve proto {shown}{root}`, "
                    f"or `pyserve run --proto`, which generates all that are missing"
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
    if files := [file for file in proto_files(Path()) if _is_stale(file)]:
        generate_all(files, (Path(),))


def _is_stale(file: Path) -> bool:
    made = [file.with_name(f"{file.stem.replace('-', '_')}{ending}.py") for ending in _ENDINGS]
    if not all(each.exists() for each in made):
        return True
    return min(each.stat().st_mtime_ns for each in made) < file.stat().st_mtime_ns
