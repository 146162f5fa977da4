"""Says whether a test can fail: whether it, or what it calls in its file, asserts anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

_RAISERS = frozenset({"raises", "warns", "fail"})
# Helpers of other files are believed by their names.
_CHECKERS = ("check", "expect", "assert")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def asserts_something(source: str, function: str) -> bool:
    """Say whether the function of that name, or one that it reaches in ``source``, asserts.

    What counts: ``assert`` with anything but a constant, ``pytest.raises``, ``warns`` and
    ``fail``, and calls of ``check...``, ``expect...`` and ``assert...``.
    """
    functions = {
        node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)
    }
    return function in functions and any(
        _asserts(functions[name], functions) for name in _reached(function, functions)
    )


def _reached(name: str, functions: Mapping[str, Function]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting += [each for each in _names(functions[current]) if each in functions]
    return reached


def _asserts(function: Function, functions: Mapping[str, Function]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            name = _called(node.func)
            if name in _RAISERS:
                return True
            # One of this file shows itself what it checks.
            if name.lstrip("_").startswith(_CHECKERS) and name not in functions:
                return True
    return False


def _names(function: Function) -> Iterator[str]:
    """Yield what the body mentions: helpers may be passed on, and fixtures are parameters."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def _called(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
