"""The requests that wait for admission, in the order in which they are admitted.

Those whose deadlines can still be met come first; among them higher priorities; in one priority
the clients take turns, by what their requests cost (start-time fair queueing, Goyal et al., 1996);
requests of one client come in order of arrival.
"""

from __future__ import annotations

import heapq
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from pyserve.stepping.entries import Entry, Phase

Call = TypeVar("Call")

# Fewer turns of clients without requests, and fewer requests that were cancelled, are not looked
# through; arbitrary.
_SWEEP_MIN = 256
# Most requests that are passed over because their keys find no room. All are compared when a key is
# free, which takes half a millisecond; arbitrary.
_BLOCKED_MAX = 1024


class _Priority(Generic[Call]):
    """The requests of one priority."""

    __slots__ = ("clients", "placed", "turns")

    def __init__(self) -> None:
        self.clients: dict[str, deque[Entry[Call]]] = {}  # Those with requests only.
        # A heap of (the client's turn, arrival of its first request, client).
        self.turns: list[tuple[float, int, str]] = []
        self.placed: dict[str, tuple[float, int, str]] = {}  # That of each client which counts.

    def place(self, turn: float, first: Entry[Call]) -> None:
        """Set when it is the turn of a client, and what its first request is."""
        placed = self.placed[first.client] = (turn, first.arrival, first.client)
        heapq.heappush(self.turns, placed)
        if len(self.turns) > _SWEEP_MIN + 2 * len(self.placed):
            self.turns = list(self.placed.values())
            heapq.heapify(self.turns)

    def forget(self, client: str) -> None:
        """Forget a client without requests."""
        del self.clients[client], self.placed[client]


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
            self.put_back()
        elif head is not None:
            self._late.append(head)
        self._head = self._next(is_late)
        return self._head

    def put_back(self) -> None:
        """Let the request that ``first`` has returned wait in its place again."""
        if self._head is not None:
            self._enqueue(self._head)
            self._head = None

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

    def rank(self, entry: Entry[Call]) -> tuple[float, float, int]:
        """Return what orders requests that can meet their deadlines; lower ones come first."""
        return -entry.priority, self._turn(entry), entry.arrival

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
        if not queue or queue[-1].arrival < entry.arrival:
            queue.append(entry)
        else:  # It has waited before: it comes before those that came after it.
            later = (at for at, each in enumerate(queue) if each.arrival > entry.arrival)
            queue.insert(next(later), entry)
        if queue[0] is entry:
            priority.place(self._turn(entry), entry)

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
        while priority.turns:
            top = heapq.heappop(priority.turns)
            turn, _, client = top
            if priority.placed.get(client) is not top:
                continue  # Another request was put in front, or there are none.
            queue = priority.clients[client]
            while queue and queue[0].phase is not Phase.WAITING:
                queue.popleft()
            if not queue:
                priority.forget(client)
                continue
            first = queue[0]
            if self._turn(first) > turn:  # Its client has had a turn in the meantime.
                priority.place(self._turn(first), first)
                continue
            queue.popleft()
            if queue:
                priority.place(self._turn(queue[0]), queue[0])
            else:
                priority.forget(client)
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
                    priority.forget(client)

    def _forget_turns(self) -> None:
        if len(self._turns) > _SWEEP_MIN + 2 * self._count:
            # Where each request has a client of its own the time stands still, and nobody's turn is
            # past. So it goes on to the median: at least half are forgotten, which become equal to
            # new clients, and those who have had most still wait for their turns.
            now = self._now = max(self._now, statistics.median_high(self._turns.values()))
            self._turns = {name: turn for name, turn in self._turns.items() if turn > now}


class Blocked(Generic[Call]):
    """Requests that were passed over, because their keys find no room. They have the phase WAITING.

    Args:
        waiting: Where they come from, and go back to.
        passes_max: Others that may pass them, until a key is free.
    """

    def __init__(self, waiting: Waiting[Call], passes_max: int) -> None:
        self._waiting = waiting
        self._passes_max = passes_max
        self._passes = 0
        self._entries: dict[Entry[Call], None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[Call]]:
        return iter(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    @property
    def may_be_passed(self) -> bool:
        """Whether one more request may be admitted before these."""
        return not self._entries or self._passes < self._passes_max

    def note_pass(self) -> None:
        """Count a request that is admitted before these."""
        if self._entries:
            self._passes += 1

    def add(self, entry: Entry[Call]) -> bool:
        """Pass over the first request of those that wait; say whether there was room to."""
        if len(self._entries) >= _BLOCKED_MAX:
            self._waiting.put_back()
            return False
        self._waiting.remove(entry)
        self._entries[entry] = None
        return True

    def remove(self, entry: Entry[Call]) -> None:
        """Let a request go."""
        del self._entries[entry]

    def free_key(self, is_late: Callable[[Entry[Call]], bool]) -> None:
        """Let those wait in their order again that have the key of the first of them."""
        if not self._entries:
            return
        self._passes = 0
        rank = self._waiting.rank
        key = min(self._entries, key=lambda each: (is_late(each), *rank(each))).key
        of_key = [entry for entry in self._entries if entry.key == key]
        # Each is put before the last one, which takes no search.
        for entry in sorted(of_key, key=lambda each: -each.arrival):
            del self._entries[entry]
            self._waiting.add(entry)
