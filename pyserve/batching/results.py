"""Turns what a batched function returned into one result for each item."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pyserve.bridge import end_if_forked
from pyserve.errors import BatchError
from pyserve.interrupts import EXITS, is_ctrl_c
from pyserve.observe.failures import exc_info_of, failure_logger
from pyserve.observe.separate import Separate

_LOGGER = failure_logger(__name__)


def checked(results: object, size: int, label: str) -> Sequence[Any]:
    """Return ``results`` if it is a list, tuple or array whose first axis has the batch's length.

    Raises:
        BatchError: It is something else, or its length is another one.
    """
    if type(results) is list and len(results) == size:
        return results
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
    if not isinstance(error, Exception | asyncio.CancelledError):
        # Raised in the awaiting code, an exit would end its loop and all other calls in it.
        wrapped = BatchError(f"{label} raised or returned {type(error).__name__}")
        wrapped.__cause__ = error
        return wrapped
    return error


class Failing(Protocol):
    """One caller who waits."""

    def fail(self, error: BaseException) -> None:
        """Answer with an exception, unless it was answered."""


def fail_each(calls: Iterable[Failing], error: BaseException, label: str) -> None:
    """Fail all calls of a batch, each with an exception of its own."""
    own = Separate()
    for call in calls:
        call.fail(sendable(own(error), label))


def fail_all(calls: Iterable[Failing], error: BaseException, label: str) -> bool:
    """Fail all calls of a batch that ended with an exit instead of results.

    Returns:
        Whether that settles it: an exit that a model's code raises is a failure of its batch, and
        not the end of the process and of all other calls in it.
    """
    end_if_forked(error)
    fail_each(calls, error, label)
    if not isinstance(error, EXITS) or is_ctrl_c(error):
        return False
    name = type(error).__name__
    _LOGGER.error(
        "%s raised %s, which fails its batch only", label, name, exc_info=exc_info_of(error)
    )
    return True
