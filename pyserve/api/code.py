"""How code travels: by import path where a module reaches it, else by value.

Only holders of the mesh token may send a value, since unpickling runs code. ``__main__`` is
never run again in a replica: what it defines travels by value.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import site
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import cloudpickle

from pyserve.api.deployment import Application, Deployment, is_function
from pyserve.api.modules import digest, own_modules
from pyserve.api.pickling import dumps
from pyserve.errors import ImportPathError

Code: TypeAlias = "type | Callable[..., object]"
"""What a deployment runs: a class, or a function."""

# Debian's own is the second.
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedCode:
    """A class or function on its way to a replica. Exactly one of the first two is not empty.

    Attributes:
        import_path: ``module:qualname``.
        pickled: cloudpickle of the class or function.
        sys_path: Where the sender's interpreter looks for modules, in order.
        working_directory: The sender's.
        fingerprint: Of the source files that the sender has imported, see ``fingerprint``.
    """

    import_path: str = ""
    pickled: bytes = b""
    sys_path: tuple[str, ...] = ()
    working_directory: str = ""
    fingerprint: bytes = b""


def ship(target: Code) -> ShippedCode:
    """Pack a class or function for another process of this machine or of one that looks the same.

    Raises:
        TypeError: It has to travel by value and cannot be pickled; pickle's text says
            which part.
    """
    directory = str(Path.cwd())
    # An empty entry means the working directory of the importing process.
    sys_path = tuple(entry or directory for entry in sys.path)
    reachable = is_reachable(target)
    return ShippedCode(
        import_path=f"{target.__module__}:{target.__qualname__}" if reachable else "",
        pickled=b"" if reachable else dumps(target),
        sys_path=sys_path,
        working_directory=directory,
        fingerprint=fingerprint(),
    )


def fingerprint() -> bytes:
    """Return a digest of the user's own modules that this process has imported.

    It covers path, size and time of change of their files as they are now, so that a module
    which was edited since makes a difference.
    """
    return digest(own_modules().items())


def is_reachable(target: Code) -> bool:
    """Say whether importing the target's module leads to it, directly or as a ``Deployment``."""
    if target.__module__ == "__main__" or "<locals>" in target.__qualname__:
        return False
    found: object = sys.modules.get(target.__module__)
    for name in target.__qualname__.split("."):
        found = getattr(unwrap(found), name, None)
    return unwrap(found) is target


def unwrap(found: object) -> object:
    """Return what a deployment or an application runs, anything else as it is."""
    if isinstance(found, Application):
        found = found.deployment
    return found.target if isinstance(found, Deployment) else found


def receive(code: ShippedCode) -> Code:
    """Unpack what ``ship`` packed. Runs the sender's code.

    Raises:
        ImportPathError: The path leads nowhere, or to something that is neither class nor
            function.
        Exception: Whatever the imported module or the pickle raises.
    """
    if code.import_path:
        found = unwrap(import_attribute(code.import_path))
    else:
        found = cloudpickle.loads(code.pickled)
    if not isinstance(found, type) and not is_function(found):
        what = code.import_path or "what the driver sent"
        raise ImportPathError(f"{what} is {found!r}; a deployment must be a class or a function")
    return found


def prepare_interpreter(
    code: ShippedCode, *, own_directory: bool = False, own_packages: bool = False
) -> None:
    """Give this process the sender's working directory and module search path.

    Entries of our own that the sender lacks stay behind its entries.

    Args:
        code: What the sender says.
        own_directory: This process stays where it was started, and looks there first; so it does
            where the sender's directory is on another machine.
        own_packages: What is installed for this interpreter comes before what is for the sender's.
    """
    if code.working_directory and not own_directory:
        try:
            os.chdir(code.working_directory)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            own_directory = True
    theirs = list(code.sys_path)
    if own_packages:
        places = (at for at, each in enumerate(theirs) if Path(each).name in _PACKAGE_FOLDERS)
        at = next(places, len(theirs))
        theirs[at:at] = site.getsitepackages()
    first = [str(Path.cwd())] if own_directory else []
    sys.path[:] = dict.fromkeys((*first, *theirs, *filter(None, sys.path)))
    importlib.invalidate_caches()


def import_attribute(path: str) -> object:
    """Import ``module:qualname`` and return what it names.

    Raises:
        ImportPathError: The path is malformed, there is no such module, or no such attribute.
        Exception: Whatever the module itself raises while it is imported.
    """
    module_name, separator, qualname = path.partition(":")
    if not separator or not module_name or not qualname:
        raise ImportPathError(
            f"{path!r} is no import path; write module:attribute, e.g. services.digits.app:app"
        )
    if "/" in module_name or module_name.startswith(".") or module_name.endswith(".py"):
        raise ImportPathError(
            f"{path!r} names a file; write its module with dots, from a directory on sys.path, "
            f"e.g. {_module_of(module_name)}:{qualname}"
        )
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is missing further down is the user's own import, with its traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ImportPathError(
            f"there is no module {error.name!r} for {path!r}; {_searched(error.name)}"
        ) from error
    for name in qualname.split("."):
        found = _attribute(unwrap(found), name, path)
    return found


def _searched(module: str) -> str:
    """Return where a module was looked for, and what to do."""
    package = sys.modules.get(module.rpartition(".")[0])
    inside = getattr(package, "__path__", None)
    if package is not None:
        place = ", ".join(inside) if inside is not None else f"{package.__name__}, no package"
        return f"looked in {place}. Correct the name"
    first, here = (str(Path(each).absolute()) for each in ((sys.path or [""])[0], Path()))
    looked = f"looked in {first} and the rest of sys.path"
    if importlib.machinery.PathFinder.find_spec(module, [here]) is not None:
        return f"{looked}, but it is in {here}: name that directory, or put it on PYTHONPATH"
    return f"{looked}. Name the directory that holds it, or start there, or correct the name"


def _module_of(file_name: str) -> str:
    """Guess the module that is meant by a path such as ``./services/digits/app.py``."""
    return file_name.removesuffix(".py").replace("/", ".").strip(".") or "module"


def _attribute(owner: object, name: str, path: str) -> object:
    missing = object()
    found: object = getattr(owner, name, missing)
    if found is missing:
        import difflib

        by_lower_case = {each.lower(): each for each in dir(owner)}
        close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
        hint = "define it there, or correct the name"
        if close:
            hint = f"did you mean {by_lower_case[close[0]]!r}?"
        where = getattr(owner, "__file__", None) or repr(owner)
        raise ImportPathError(f"{path!r}: {where} has no attribute {name!r}; {hint}")
    return found
