"""Pickles code that travels by value: cloudpickle, and what it leaves behind.

A FastAPI application that ``__main__`` or a notebook defines goes to the replicas with its class.
Two of its parts cannot be pickled as they are. And what annotations name must come along where
they are texts (``from __future__ import annotations``), since replicas read them. So must the
source of code that is in no file, such as a notebook's cells, since tracebacks show its lines.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

import cloudpickle

from pyserve.code_pickler import CodePickler
from pyserve.signatures import annotations_of

# Of all that travels with one value: a few hundred long cells. Arbitrary.
_SOURCES_CHARACTERS_MAX = 1 << 20


def dumps(value: object, *, bytes_max: int | None = None) -> bytes:
    """Return the pickle of a class, a function or a web application.

    Raises:
        TypeError: Some part of it cannot be pickled; the text says which.
        ValueError: It has more than ``bytes_max``.
    """
    buffer = io.BytesIO() if bytes_max is None else _Bounded(bytes_max)
    pickler = Pickler(buffer)
    pickler.dump(value)
    return pickler.with_sources(buffer.getvalue())


class _Bounded(io.BytesIO):
    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self._bytes_max = bytes_max

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > self._bytes_max:
            raise ValueError(f"the pickle has more than {self._bytes_max} bytes")
        return super().write(data)


class Pickler(CodePickler):
    """cloudpickle's, and what it leaves behind."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._files: set[str] = set()

    def with_sources(self, data: bytes) -> bytes:
        """Return a pickle that was made with this one, and brings the sources of its code.

        They come with a pickle around it, so that they are there before code runs.
        """
        found = _sources_of(self._files)
        return cloudpickle.dumps(_WithSources(found, data)) if found else data

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
            self._files.add(value.__code__.co_filename)
        return reduced


class _WithSources:
    """Is what it carries when it has arrived."""

    def __init__(self, sources: Mapping[str, str], data: bytes) -> None:
        self._arguments = dict(sources), data

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, self._arguments


def id_in_code(kind: type) -> str | None:
    """Return by what a class that has travelled by value is known, also where it came from."""
    found: Mapping[type, str] = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS  # noqa: SLF001
    return found.get(kind)


def class_of_code(class_id: str) -> type | None:
    """Return the class with that id, if it has come to this process or has left it."""
    found: Mapping[str, type] = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID  # noqa: SLF001
    return found.get(class_id)


def _arrived(sources: Mapping[str, str], data: bytes) -> object:
    for name, text in sources.items():
        # Without a modification time, ``linecache.checkcache`` does not look for the file.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return cloudpickle.loads(data)


def _sources_of(files: Iterable[str]) -> dict[str, str]:
    """Return the source texts of names that are not files, where this process has them cached."""
    found: dict[str, str] = {}
    left = _SOURCES_CHARACTERS_MAX
    for name in sorted(files):
        # Code may have any file name; ``Path`` rejects some.
        is_file = os.path.isfile(name)  # noqa: PTH113
        text = "" if is_file else "".join(linecache.getlines(name))
        if text and len(text) <= left:
            found[name] = text
            left -= len(text)
    return found


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
