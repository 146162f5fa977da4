"""Pickles code that travels by value: cloudpickle, and what it does not know of web applications.

A FastAPI application that ``__main__`` or a notebook defines goes to the replicas with its class.
Two of its parts cannot be pickled as they are.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle


def dumps(value: object) -> bytes:
    """Return the pickle of a class, a function or a web application.

    Raises:
        TypeError: Some part of it cannot be pickled; the text says which.
    """
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it ships no types
    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if (kind.__module__, kind.__name__) == ("starlette.datastructures", "State"):
            # Its attributes are looked up in what only its constructor makes.
            return kind, (dict(value._state),)  # noqa: SLF001  # it has no other way in
        if (kind.__module__, kind.__name__) == ("fastapi.routing", "_IncludedRouter"):
            # It holds a lock, and beside it only what it works out by itself.
            return kind, (value.original_router, value.include_context)
        return super().reducer_override(value)
