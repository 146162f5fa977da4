"""Waiting items and batches that leave: plain data, changed only by ``batcher.py``."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

_INFINITE = math.inf


class Reason(StrEnum):
    """Why a batch left."""

    FULL = "full"
    IDLE = "idle"
    WINDOW = "window"
    DEADLINE = "deadline"
    STRIDE = "stride"
    DRAIN = "drain"
    FLUSH = "flush"


class Drop(StrEnum):
    """Why an item left without a batch although its caller still waits."""

    EXPIRED = "expired"
    HOPELESS = "hopeless"
    OVERSIZED = "oversized"


@dataclass(frozen=True, slots=True)
class Batch(Generic[Item]):
    """The items that leave together: ``size <= max_batch_size``, and at least one item.

    ``arrivals`` are those of its items; empty if they are not recorded.
    """

    items: list[Item]
    reason: Reason
    key: str = ""
    size: float = 1
    arrivals: list[float] = field(default_factory=list)


class Ready(NamedTuple, Generic[Item]):
    """The full batch at the head of a lane, and the earliest deadline in it."""

    batch: Batch[Item]
    deadline: float


# A waiting item: arrival, deadline, size, item. A tuple, because one is made for every call.
Entry = tuple[float, float, float, Item]


class Lane(Generic[Item]):
    """The items of one key that wait."""

    __slots__ = ("deadline", "flushing", "has_deadlines", "key", "ready", "size", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: deque[Entry[Item]] = deque()
        self.size: float = 0  # The sum over `waiting`, callers who have gone included.
        # The earliest deadline of the items that may be in the next batch; ``None``: not computed
        # since these changed.
        self.deadline: float | None = None
        self.has_deadlines = False
        self.flushing = 0  # This many at the head leave without a wait: flushing <= len(waiting).
        self.ready: Ready[Item] | None = None  # Of the present head; see `Batcher.prepare`.

    def remove(self, count: int, size: float) -> None:
        """Take the first ``count`` away, which have ``size`` together."""
        waiting = self.waiting
        for _ in range(count):
            waiting.popleft()
        self.size = self.size - size if waiting else 0
        self.flushing = max(0, self.flushing - count)
        self.deadline = None
        self.ready = None

    def deadline_within(self, count: int) -> float:
        """Return the earliest deadline among the first ``count``."""
        deadline = self.deadline
        if deadline is None:
            deadline = _INFINITE
            if self.has_deadlines:
                entries = zip(self.waiting, range(count), strict=False)
                deadline = min((entry[1] for entry, _ in entries), default=_INFINITE)
            self.deadline = deadline
        return deadline
