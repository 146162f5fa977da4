"""cloudpickle's pickler, with the names of files in the code that travels by value.

Since 3.1.2 cloudpickle leaves them out, so that pickles are the same wherever their code lies.
Tracebacks of a script's or a notebook's classes would name no file then, and show no lines.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle

# Of the constructor of code objects, since CPython 3.11.
_FILENAME = 10


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it ships no types
    """Pickles as ``cloudpickle.Pickler`` does, code with the names of its files."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not CodeType:
            return super().reducer_override(value)
        kind, arguments = cloudpickle.cloudpickle._code_reduce(value)  # noqa: SLF001
        return kind, (*arguments[:_FILENAME], value.co_filename, *arguments[_FILENAME + 1 :])


def dumps(
    value: object,
    protocol: int | None = None,
    buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
) -> bytes:
    """Return the pickle of a value, as ``cloudpickle.dumps`` does.

    Raises:
        Exception: Some part of it cannot be pickled.
    """
    buffer = io.BytesIO()
    CodePickler(buffer, protocol, buffer_callback).dump(value)
    return buffer.getvalue()
