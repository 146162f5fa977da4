"""How many bytes a loaded model counts for, where ``max_bytes`` limits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyserve.errors import OptionError


def size_of(model: object, size_fn: Callable[[object], int] | None, label: str) -> int:
    """Return the size of ``model`` in bytes.

    It is what ``size_fn`` returns, else the model's ``size_bytes`` or ``nbytes`` (attribute or
    method without arguments), else the length of ``bytes``.

    Raises:
        OptionError: It has no size, or none that is a whole number of at least 0.
    """
    size: Any
    if size_fn is not None:
        size = size_fn(model)
    elif isinstance(model, bytes | bytearray):
        size = len(model)
    else:
        size = getattr(model, "size_bytes", None)
        if size is None:
            size = getattr(model, "nbytes", None)
        if size is None:
            raise OptionError(
                f"{label}: max_bytes is set, and {type(model).__name__} does not say its size; "
                f"give it an attribute or method size_bytes, or write "
                f"@pyserve.multiplexed(max_bytes=..., size_fn=lambda model: ...)"
            )
        size = size() if callable(size) else size
    if not hasattr(size, "__index__") or int(size) < 0:
        raise OptionError(f"{label}: {size!r} is no size; a whole number of bytes is wanted")
    return int(size)
