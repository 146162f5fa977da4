"""Decides which calls of a deployment run, wait, or are refused. Knows no loop and no clock."""

from __future__ import annotations

import heapq
from typing import Generic, Literal, TypeVar

Call = TypeVar("Call")

Decision = Literal["run", "wait", "refuse"]


class Gate(Generic[Call]):
    """As many calls as may run, and a bounded queue of the others: priority first, then age.

    Invariants: 0 <= running <= limit, and nothing waits while running < limit.

    Args:
        limit: How many calls may run at once, at least 1.
        queue_len_max: How many more may wait.
    """

    def __init__(self, limit: int, queue_len_max: int) -> None:
        self.running = 0
        self._limit = limit
        self._queue_len_max = queue_len_max
        self._waiting: list[tuple[int, int, Call]] = []
        self._left: set[int] = set()  # Numbers of calls that have left the queue early.
        self._number_of: dict[Call, int] = {}
        self._next_number = 0

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._number_of)

    def offer(self, call: Call, priority: int = 0) -> Decision:
        """Say what becomes of a new call; "run" takes a place, "wait" keeps the call."""
        if self.running < self._limit:
            self.running += 1
            return "run"
        if self.waiting >= self._queue_len_max:
            return "refuse"
        self._number_of[call] = self._next_number
        heapq.heappush(self._waiting, (-priority, self._next_number, call))
        self._next_number += 1
        return "wait"

    def complete(self) -> Call | None:
        """Give a place back; return the call that has taken it."""
        while self._waiting:
            _, number, call = heapq.heappop(self._waiting)
            if number in self._left:
                self._left.remove(number)
                continue
            del self._number_of[call]
            return call
        self.running -= 1
        return None

    def withdraw(self, call: Call) -> bool:
        """Take a call out of the queue; ``False``: it does not wait."""
        number = self._number_of.pop(call, None)
        if number is None:
            return False
        self._left.add(number)
        return True

    def close(self) -> list[Call]:
        """Empty the queue; return who waited, in the order in which they would have run."""
        calls = [
            call
            for *_, call in sorted(self._waiting, key=lambda each: each[:2])
            if call in self._number_of
        ]
        self._waiting.clear()
        self._left.clear()
        self._number_of.clear()
        return calls
