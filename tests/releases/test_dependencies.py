"""A clean environment with the wheel has every package that pyserve imports."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Imported where the user's code has named them only.
OF_USERS = {"fastapi", "numpy"}
# In the standard library of newer Pythons than the oldest.
OF_LATER_PYTHONS = {"annotationlib"}
# Comes with pydantic, in the one version that it works with.
OF_PYDANTIC = {"pydantic-core"}
# Of packages that may be absent here, by what is imported.
OF_EXTRAS = {"zmq": "pyzmq"}
# A program that protoc runs, and types that checkers read beside stubs.
NOT_IMPORTED = {"mypy-protobuf", "types-grpcio"}


def _declared() -> set[str]:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return {canonicalize_name(Requirement(line).name) for line in chain.from_iterable(groups)}


def _imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _imported() -> list[set[str]]:
    """Return the distributions that may be meant by each imported name: several for `google`."""
    files = (ROOT / "pyserve").rglob("*.py")
    names = {name for file in files for name in _imports(file.read_text(encoding="utf-8"))}
    known = packages_distributions()
    return [
        {canonicalize_name(each) for each in known.get(name, [OF_EXTRAS.get(name, name)])}
        for name in names - {"pyserve", *sys.stdlib_module_names, *OF_LATER_PYTHONS}
    ]


def test_every_package_that_is_imported_is_declared():
    declared = _declared() | OF_USERS | OF_PYDANTIC
    assert [] == [names for names in _imported() if not names & declared]


def test_every_package_that_is_declared_is_imported():
    assert NOT_IMPORTED == _declared() - set().union(*_imported())
