"""The options of a batched function, and those that can be set while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from pyserve.config.validation import option_error
from pyserve.errors import OptionError, OptionTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyserve.config.parts import BatchingConfig
Wait = float | Literal["auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Limits of one batched function.

    Attributes:
        max_batch_size: Most items of a batch, or with ``batch_size_fn`` the largest sum of
            their sizes; at least 1.
        batch_wait_timeout_s: Longest wait of the oldest item for company while an executor
            is free, at least 0; ``"auto"`` learns when waiting pays.
        max_concurrent_batches: Batches that may run at once, at least 1.
        batch_size_fn: Called once for each item with a list that holds it alone; returns its
            size, at least 0. The item is the argument itself, or the tuple of the arguments
            where the function has several parameters.
        isolate_failures: Whether a batch that raises is run again in halves until only the
            bad items fail. The function must be idempotent.
        stride_s: 0 lets batches leave at any time; above, only at multiples of this time.
        allow_small_batch: Whether a batch that is not full may leave when its time is over.
    """

    max_batch_size: int = 10
    batch_wait_timeout_s: Wait = 0.01
    max_concurrent_batches: int = 1
    batch_size_fn: Callable[[list[Any]], float] | None = None
    isolate_failures: bool = False
    stride_s: float = 0.0
    allow_small_batch: bool = True

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_concurrent_batches"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                text = f"batch: {name} must be an int of at least 1, not {value!r}"
                raise option_error(text, value, int)
        if self.batch_wait_timeout_s != "auto":
            _check_seconds("batch_wait_timeout_s", self.batch_wait_timeout_s, ', or "auto"')
        _check_seconds("stride_s", self.stride_s, "")
        for name in ("isolate_failures", "allow_small_batch"):
            flag: object = getattr(self, name)
            if not isinstance(flag, bool):
                raise OptionTypeError(f"batch: {name} must be True or False, not {flag!r}")
        size_fn: object = self.batch_size_fn
        if size_fn is not None and not callable(size_fn):
            raise OptionTypeError(
                f"batch: batch_size_fn must be a function that takes a list of items and returns "
                f"their size, not {size_fn!r}"
            )

    @classmethod
    def of_config(cls, config: BatchingConfig) -> BatchOptions:
        """Return the limits that a deployment's ``batching_config`` asks for."""
        return cls(
            max_batch_size=config.max_batch_size,
            batch_wait_timeout_s=config.timeout_s,
            max_concurrent_batches=config.max_concurrent_batches,
            stride_s=config.stride_s,
            allow_small_batch=config.allow_small_batch,
        )

    @property
    def is_auto(self) -> bool:
        """Whether the wait is learnt."""
        return self.batch_wait_timeout_s == "auto"

    def updated(self, **changes: object) -> BatchOptions:
        """Return a copy with some fields changed.

        Raises:
            OptionError: A value is out of range.
        """
        return replace(self, **changes)  # type: ignore[arg-type]  # checked by the constructor


def size_of(size_fn: Callable[[list[Any]], float], arguments: tuple[object, ...]) -> float:
    """Return the size of one call's item.

    Raises:
        OptionError: ``size_fn`` returned something else than a number of at least 0.
    """
    item = arguments[0] if len(arguments) == 1 else arguments
    size: object = size_fn([item])
    return read_number(size, "batch: batch_size_fn")


def read_number(value: object, returned_by: str) -> float:
    """Return a number of at least 0 that user code returned.

    Args:
        value: What it returned.
        returned_by: The beginning of the message: what returned it.

    Raises:
        OptionError: It is something else.
    """
    try:
        number = float(value)  # type: ignore[arg-type]  # arrays without axes are numbers too
    except (TypeError, ValueError, OverflowError):  # The last one: an int beyond all floats.
        number = math.nan
    if not 0 <= number < math.inf:
        raise OptionError(f"{returned_by} returned {value!r}; return a number of at least 0")
    return number


def _check_seconds(name: str, value: object, alternative: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]
        what = f"a number of seconds of at least 0{alternative}"
        raise option_error(f"batch: {name} must be {what}, not {value!r}", value, int, float)


# Whether the batch sizes of methods that call each other fit.


def check_chain(*sizes: int) -> str | None:
    """Look at the batch sizes along a chain, upstream first.

    A batch of 8 becomes 6 and a rest of 2 in front of a method that takes 6: the rest waits, or
    runs nearly empty. Sizes of which one is a multiple of the other (8, 8, 4) leave no rest.

    Args:
        sizes: ``max_batch_size`` of each method; 0 where one is not batched, which ends a chain.

    Returns:
        A text that says what is wrong and what to write instead, or ``None``.
    """
    for upstream, downstream in pairwise(sizes):
        if upstream and downstream and upstream % downstream and downstream % upstream:
            rest = upstream % downstream
            fitting = next(n for n in range(min(upstream, downstream), 0, -1) if not upstream % n)
            return (
                f"batches of {upstream} go into a method that takes max_batch_size={downstream}: "
                f"{rest} of them are left over each time; use a multiple, such as {upstream} or "
                f"{fitting}"
            )
    return None
