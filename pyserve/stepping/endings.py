"""What callers get whose requests are refused, or end before their last value."""

from __future__ import annotations

from typing import Any

from grpc import StatusCode

from pyserve.errors import (
    Abort,
    BatchError,
    QueueFull,
    RequestCancelled,
    RequestTimeout,
    RequestTooLarge,
)
from pyserve.stepping.entries import End, Entry, Refusal
from pyserve.stepping.options import ContinuousOptions

# Raised to who reads values, they would be their end.
_ENDS_OF_ITERATIONS = (StopIteration, StopAsyncIteration)


class NotStarted(Abort):
    """A request had to leave before it was admitted, so the router sends it to another replica.

    Attributes:
        metadata: What tells the router; as those of a full replica (``names.rs``).
    """

    metadata = (("pyserve-refused", "1"),)

    def __init__(self, details: str) -> None:
        super().__init__(StatusCode.UNAVAILABLE, details, self.metadata)


def refused(
    name: str, options: ContinuousOptions, refusal: Refusal, entry: Entry[Any]
) -> Exception:
    """Return the error of a request that is not taken.

    Args:
        name: Of the class.
        options: Its limits.
        refusal: Why.
        entry: The request.
    """
    if refusal is Refusal.TOO_LARGE:
        needs = entry.bound if options.reserve == "bound" else entry.cost
        return RequestTooLarge(
            f"the request costs {needs:g}, more than the whole budget of {name}, "
            f"{options.budget:g}; send a smaller one"
        )
    if refusal is Refusal.FULL:
        return QueueFull(f"{options.max_waiting} requests wait for {name}, as many as may")
    return NotStarted(f"this replica of {name} ends; send the request again")


def ended(name: str, options: ContinuousOptions, why: End, entry: Entry[Any]) -> Exception:
    """Return the error of a request that the scheduler ends; arguments as of ``refused``."""
    if why is End.CANCELLED:
        return RequestCancelled("the call was cancelled")
    if why is End.EXPIRED:
        return RequestTimeout("the deadline has passed")
    if why is End.DRAINED:
        return refused(name, options, Refusal.DRAINING, entry)
    return Abort(
        StatusCode.RESOURCE_EXHAUSTED,
        f"the budget of {name} was exceeded, and this request, which costs {entry.cost:g}, "
        f"cannot be preempted any more; it had been {entry.preempts} times",
    )


def odd_result(name: str, result: object) -> Exception:
    """Return the error of a request whose step has returned something else than it may."""
    return BatchError(
        f"{name}.step returned {result!r} for a state; return Emit, Done, Failed or None"
    )


def odd_emission(name: str, result: object) -> Exception:
    """Return the error of an engine that gives its callback something else than it takes."""
    return BatchError(f"{name} emitted {result!r}; emit an Emit, a Done or a Failed")


def odd_yield(name: str, value: object) -> Exception:
    """Return the error of an ``admit`` that yields what ``step`` would return."""
    return BatchError(
        f"{name}.admit yielded {value!r}; yield the values themselves, return where they end, and "
        f"raise what the request fails with"
    )


def as_exception(error: BaseException) -> Exception:
    """Return what callers can get in place of an exception that ends threads, or iterations."""
    if isinstance(error, Exception) and not isinstance(error, _ENDS_OF_ITERATIONS):
        return error
    return RuntimeError(f"it raised {error!r}")
