"""When a batch leaves: a pure state machine without loop, clock or I/O.

Items wait in arrival order. A batch leaves when an executor is free and either enough items
wait or the oldest has waited long enough; while every executor is busy the batch stays open
for newcomers (late binding). The driver in ``queue.py`` calls it with the loop's time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from pyserve.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

Item = TypeVar("Item")


class Reason(StrEnum):
    """Why a batch left."""

    FULL = "full"
    WINDOW = "window"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Limits of one batched method.

    Attributes:
        max_batch_size: Most items of a batch, at least 1.
        batch_wait_timeout_s: Longest wait of the oldest item for company while an executor
            is free, at least 0.
        max_concurrent_batches: Batches that may run at once, at least 1.
    """

    max_batch_size: int = 10
    batch_wait_timeout_s: float = 0.01
    max_concurrent_batches: int = 1

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_concurrent_batches"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"batch: {name} must be an int of at least 1, not {value!r}")
        wait_s: object = self.batch_wait_timeout_s
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not wait_s >= 0:
            raise OptionError(
                f"batch: batch_wait_timeout_s must be a number of at least 0, not {wait_s!r}"
            )


@dataclass(frozen=True, slots=True)
class Batch(Generic[Item]):
    """What leaves together. ``1 <= len(items) <= max_batch_size``."""

    items: list[Item]
    reason: Reason


class Batcher(Generic[Item]):
    """Collects items and says when a batch leaves.

    Args:
        options: The limits.
        is_live: Whether an item's caller still waits; others are dropped before the run.
    """

    def __init__(self, options: BatchOptions, is_live: Callable[[Item], bool]) -> None:
        self.options = options
        self._is_live = is_live
        self._waiting: deque[tuple[float, Item]] = deque()  # (arrival in seconds, item)
        self._running = 0  # 0 <= running <= max_concurrent_batches

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item, now: float) -> bool:
        """Queue an item; ``True`` means that ``take`` or ``next_wakeup`` has news."""
        self._waiting.append((now, item))
        if self._running == self.options.max_concurrent_batches:
            return False  # The end of a running batch asks again.
        count = len(self._waiting)
        return count == 1 or count >= self.options.max_batch_size

    def take(self, now: float) -> Batch[Item] | None:
        """Return a batch that leaves now, counted as running, or ``None``."""
        if self._ready_reason(now) is None:
            return None
        # Dropped callers neither fill a batch nor open its window, so decide once more.
        self._waiting = deque(entry for entry in self._waiting if self._is_live(entry[1]))
        reason = self._ready_reason(now)
        if reason is None:
            return None
        size = min(len(self._waiting), self.options.max_batch_size)
        items = [item for _, item in islice(self._waiting, size)]
        for _ in range(size):
            self._waiting.popleft()
        self._running += 1
        return Batch(items, reason)

    def complete(self) -> None:
        """Record the end of a running batch: its executor is free."""
        if self._running < 1:
            raise AssertionError("complete() without a running batch")
        self._running -= 1

    def next_wakeup(self) -> float | None:
        """Return when ``take`` should be asked again, ``None`` until something happens."""
        if not self._waiting or self._running == self.options.max_concurrent_batches:
            return None
        return self._waiting[0][0] + self.options.batch_wait_timeout_s

    def _ready_reason(self, now: float) -> Reason | None:
        if not self._waiting or self._running == self.options.max_concurrent_batches:
            return None
        if len(self._waiting) >= self.options.max_batch_size:
            return Reason.FULL
        opened = self._waiting[0][0]
        return Reason.WINDOW if now >= opened + self.options.batch_wait_timeout_s else None
