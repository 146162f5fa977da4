"""The requests that wait for admission, in the order in which they are admitted.

Those whose deadlines can still be met come first; among them higher priorities; in one priority
the clients take turns, by what their requests cost (start-time fair queueing, Goyal et al., 1996);
requests of one client come in order of arrival.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from pyserve.stepping.entries import Entry, Phase

Call = TypeVar("Call")

# Fewer turns of clients without requests, and fewer requests that were cancelled, are not looked
# through; arbitrary.
_SWEEP_MIN = 256


class _Priority(Generic[Call]):
    """The requests of one priority."""

    __slots__ = ("clients", "turns")

    def __init__(self) -> None:
        self.clients: dict[str, deque[Entry[Call]]] = {}  # Those with requests only.
        # (the client's turn, arrival of its first request, client): one for each client.
        self.turns: list[tuple[float, int, str]] = []


class Waiting(Generic[Call]):
    """Requests that wait. All that is in here has the phase WAITING."""

    def __init__(self) -> None:
        self._priorities: dict[int, _Priority[Call]] = {}
        self._order: list[int] = []  # The same, highest first.
        self._late: deque[Entry[Call]] = deque()
        self._head: Entry[Call] | None = None
        self._turns: dict[str, float] = {}  # When each client's next turn is, in costs.
        self._now = 0.0  # The turn of the request that was taken last.
        self._count = 0
        self._gone = 0  # Those in the queues that do not wait any more, at most.
        self.cost = 0.0
        """What all of them cost."""

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Entry[Call]) -> None:
        """Let a request wait; one that has waited before keeps its place."""
        entry.phase = Phase.WAITING
        self._count += 1
        self.cost += entry.cost
        self._enqueue(entry)

    def remove(self, entry: Entry[Call]) -> None:
        """Let a request that waits go. The caller has set its phase, unless it is the first."""
        self._count -= 1
        self.cost = self.cost - entry.cost if self._count else 0.0
        if entry is self._head:
            self._head = None
            return
        self._gone += 1
        if self._gone > _SWEEP_MIN + self._count:
            self._sweep()

    def first(self, is_late: Callable[[Entry[Call]], bool]) -> Entry[Call] | None:
        """Return the request whose turn it is.

        It stays the first until it is removed, or one of a higher priority comes, so that no
        large request waits for ever for small ones to leave it room.

        Args:
            is_late: Whether a request's deadline cannot be met any more.
        """
        head = self._head
        if head is not None and not is_late(head):
            if not self._order or self._order[0] <= head.priority:
                return head
            # It goes back to the place that it came from.
            self._enqueue(head)
            self._head = None
        elif head is not None:
            self._late.append(head)
        self._head = self._next(is_late)
        return self._head

    def take(self) -> Entry[Call]:
        """Remove and return what ``first`` has returned; its client's next turn is later."""
        entry = self._head
        assert entry is not None, "first() comes before take()"
        self.remove(entry)
        if not entry.was_charged:
            entry.was_charged = True
            begun = max(self._turns.get(entry.client, 0.0), self._now)
            self._now = begun
            self._turns[entry.client] = begun + max(entry.cost, 1.0)
            self._forget_turns()
        return entry

    def entries(self) -> list[Entry[Call]]:
        """Return all of them, in no particular order."""
        found = [] if self._head is None else [self._head]
        found += [entry for entry in self._late if entry.phase is Phase.WAITING]
        for priority in self._priorities.values():
            for queue in priority.clients.values():
                found += [entry for entry in queue if entry.phase is Phase.WAITING]
        return found

    # --- inside -----------------------------------------------------------------------------

    def _enqueue(self, entry: Entry[Call]) -> None:
        priority = self._priorities.get(entry.priority)
        if priority is None:
            priority = self._priorities[entry.priority] = _Priority()
            self._order = sorted(self._priorities, reverse=True)
        queue = priority.clients.get(entry.client)
        if queue is None:
            queue = priority.clients[entry.client] = deque()
        elif queue[0].arrival > entry.arrival:
            # Where it was preempted: before those that came after it.
            queue.appendleft(entry)
            heapq.heappush(priority.turns, (self._turn(entry), entry.arrival, entry.client))
            return
        queue.append(entry)
        if len(queue) == 1:
            heapq.heappush(priority.turns, (self._turn(entry), entry.arrival, entry.client))

    def _turn(self, entry: Entry[Call]) -> float:
        if entry.was_charged:  # It has had its turn, and was sent back.
            return self._now
        return max(self._turns.get(entry.client, 0.0), self._now)

    def _next(self, is_late: Callable[[Entry[Call]], bool]) -> Entry[Call] | None:
        """Take the next request out of the queues; late ones after all others."""
        for number in tuple(self._order):
            priority = self._priorities[number]
            while (entry := self._pop(priority)) is not None:
                if not is_late(entry):
                    return entry
                self._late.append(entry)
            del self._priorities[number]
            self._order.remove(number)
        while self._late:
            entry = self._late.popleft()
            if entry.phase is Phase.WAITING:
                return entry
        return None

    def _pop(self, priority: _Priority[Call]) -> Entry[Call] | None:
        turns = priority.turns
        while turns:
            turn, _, client = heapq.heappop(turns)
            queue = priority.clients.get(client)
            if queue is None:
                continue  # Of a request that was put in front, whose queue is empty by now.
            while queue and queue[0].phase is not Phase.WAITING:
                queue.popleft()
            if not queue:
                del priority.clients[client]
                continue
            first = queue[0]
            if self._turn(first) > turn:  # Its client has had a turn in the meantime.
                heapq.heappush(turns, (self._turn(first), first.arrival, client))
                continue
            queue.popleft()
            if queue:
                heapq.heappush(turns, (self._turn(queue[0]), queue[0].arrival, client))
            else:
                del priority.clients[client]
            return first
        return None

    def _sweep(self) -> None:
        """Take those out of the queues that do not wait any more, as the caller has set."""
        self._gone = 0
        self._late = deque(each for each in self._late if each.phase is Phase.WAITING)
        for priority in self._priorities.values():
            for client, queue in tuple(priority.clients.items()):
                kept = deque(each for each in queue if each.phase is Phase.WAITING)
                if kept:
                    priority.clients[client] = kept
                else:
                    del priority.clients[client]

    def _forget_turns(self) -> None:
        if len(self._turns) > _SWEEP_MIN + 2 * self._count:
            now = self._now
            self._turns = {name: turn for name, turn in self._turns.items() if turn > now}
