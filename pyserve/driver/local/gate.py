"""Decides which calls of a deployment run, wait, or are refused. Knows no loop and no clock."""

from __future__ import annotations

import heapq
from typing import Generic, Literal, TypeVar

Call = TypeVar("Call")

Decision = Literal["run", "wait", "refuse"]


class Gate(Generic[Call]):
    """As many calls as may run, and a bounded queue of the others: priority first, then age.

    A call has a weight, as at the gate of a replica: 1 for most; 0 for those that do not count.

    Invariants: 0 <= running <= limit, and the first that waits does not fit.

    Args:
        limit: Weight of the calls that may run at once, at least 1.
        queue_len_max: How many calls may wait.
    """

    def __init__(self, limit: int, queue_len_max: int) -> None:
        self.running = 0
        self._limit = limit
        self._queue_len_max = queue_len_max
        # Priority (negative), number by age, weight, call. Numbers are unique, so calls are
        # never compared.
        self._waiting: list[tuple[int, int, int, Call]] = []
        self._number_of: dict[Call, int] = {}
        self._next_number = 0

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._number_of)

    def offer(self, call: Call, *, weight: int = 1, priority: int = 0) -> Decision:
        """Say what becomes of a new call; "run" takes its places, "wait" keeps the call."""
        if weight == 0:
            return "run"
        # A call heavier than the limit would wait for ever; a replica refuses it.
        if weight > self._limit or (self.waiting >= self._queue_len_max and not self._fits(weight)):
            return "refuse"
        if self._fits(weight):
            self.running += weight
            return "run"
        self._number_of[call] = self._next_number
        heapq.heappush(self._waiting, (-priority, self._next_number, weight, call))
        self._next_number += 1
        return "wait"

    def leave(self, weight: int) -> list[Call]:
        """Give the places of a call back; return the calls that have taken them."""
        self.running -= weight
        return self._admitted()

    def withdraw(self, call: Call) -> list[Call] | None:
        """Take a call out of the queue; return those that fit now. ``None``: it does not wait."""
        if self._number_of.pop(call, None) is None:
            return None
        return self._admitted()

    def close(self) -> list[Call]:
        """Empty the queue; return who waited, in the order in which they would have run."""
        waiting, self._waiting = sorted(self._waiting, key=lambda each: each[:2]), []
        known, self._number_of = self._number_of, {}
        return [call for *_, call in waiting if call in known]

    def _fits(self, weight: int) -> bool:
        return not self._number_of and self.running + weight <= self._limit

    def _admitted(self) -> list[Call]:
        admitted: list[Call] = []
        while self._waiting:
            _, _, weight, call = self._waiting[0]
            if call in self._number_of:
                if self.running + weight > self._limit:
                    break
                del self._number_of[call]
                self.running += weight
                admitted.append(call)
            heapq.heappop(self._waiting)
        return admitted
