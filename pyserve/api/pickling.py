"""Pickles code that travels by value: cloudpickle, and what it leaves behind.

A FastAPI application that ``__main__`` or a notebook defines goes to the replicas with its class.
Two of its parts cannot be pickled as they are. And what annotations name must come along where
they are texts (``from __future__ import annotations``), since replicas read them.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import cloudpickle

from pyserve.signatures import annotations_of


def dumps(value: object) -> bytes:
    """Return the pickle of a class, a function or a web application.

    Raises:
        TypeError: Some part of it cannot be pickled; the text says which.
    """
    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it ships no types
    """cloudpickle's, and what it leaves behind."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if (kind.__module__, kind.__name__) == ("starlette.datastructures", "State"):
            # Its attributes are looked up in what only its constructor makes.
            return kind, (dict(value._state),)  # noqa: SLF001  # it has no other way in
        if (kind.__module__, kind.__name__) == ("fastapi.routing", "_IncludedRouter"):
            # It holds a lock, and beside it only what it works out by itself.
            return kind, (value.original_router, value.include_context)
        reduced = super().reducer_override(value)
        if kind is FunctionType and isinstance(reduced, tuple):
            _add_annotations(value, reduced)
        return reduced


def _add_annotations(function: FunctionType, reduced: tuple[Any, ...]) -> None:
    """Add what the annotations of a function name to the globals that travel with it."""
    taken: dict[str, Any] = reduced[2][1]["__globals__"]
    known = function.__globals__
    for annotation in annotations_of(function).values():
        if isinstance(annotation, str):
            taken.update((name, known[name]) for name in _names(annotation) if name in known)


def _names(annotation: str) -> Iterator[str]:
    try:
        parsed = ast.parse(annotation, mode="eval")
    except SyntaxError:  # It is not meant to be read.
        return
    for node in ast.walk(parsed):
        if isinstance(node, ast.Name):
            yield node.id
