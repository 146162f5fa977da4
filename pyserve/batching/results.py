"""What a batched function returned, as one result for each item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyserve.errors import BatchError


def checked(results: object, size: int, label: str) -> Sequence[Any]:
    """Return ``results`` if it is a list, tuple or array whose first axis has the batch's length.

    Raises:
        BatchError: It is something else, or its length is another one.
    """
    expected = f"return a list, tuple or array with one result for each of the {size} items"
    # What has keys is a mapping or a table; iterating it would give those away as results.
    is_sequence = hasattr(results, "__getitem__") and not (
        isinstance(results, str | bytes | bytearray | memoryview) or hasattr(results, "keys")
    )
    try:
        length = len(results) if is_sequence else None  # type: ignore[arg-type]
    except TypeError:  # An array without axes has no length.
        length = None
    if length is None:
        raise BatchError(f"{label} returned {type(results).__name__}; {expected}, in their order")
    if length != size:
        raise BatchError(
            f"{label} returned {length} results for a batch of {size}; {expected}, in their order"
        )
    return results  # type: ignore[return-value]  # it has a length and is indexed


def sendable(error: BaseException, label: str) -> BaseException:
    """Return what a future or an async iterator may raise in place of ``error``."""
    if isinstance(error, StopIteration | StopAsyncIteration):
        # Both would end the awaiting coroutine or loop silently.
        wrapped = BatchError(
            f"{label} raised or returned {type(error).__name__}, which ends a stream; only an "
            f"async generator may say so"
        )
        wrapped.__cause__ = error
        return wrapped
    return error
