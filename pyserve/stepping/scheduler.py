"""Which requests are admitted, stepped, parked, preempted and ended: a pure state machine.

It knows no clock, no thread and no user code. Between two steps its driver (``engine``) asks, in
this order: ``preempting``, ``ending``, ``admitting``, ``choose``; and reports what came of it.
Requests of one key step together (iteration-level scheduling: Orca, OSDI 2022); keys take turns
by deficit round robin (Shreedhar and Varghese, 1995) in the time that their steps take.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections import deque
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

from pyserve.batching.steps import StepTimes
from pyserve.stepping.departures import Departures
from pyserve.stepping.entries import End, Entry, Load, Phase, Refusal
from pyserve.stepping.options import ContinuousOptions
from pyserve.stepping.waiting import Blocked, Waiting

Call = TypeVar("Call")

# A step counts at least this much, so that steps that take no time end a key's turn too.
_STEP_MIN_S = 1e-6
# Held states, parked ones included, for each that may run: parked ones need room besides.
_HELD_PER_RUNNING = 2
# The learnt times of so many keys without states are kept; arbitrary.
_TIMES_MAX = 64
# Fewer deadlines of requests that have ended are not swept away; arbitrary.
_SWEEP_MIN = 256
_HELD = frozenset({Phase.ADMITTING, Phase.RUNNING, Phase.PARKED})


def _is_live(entry: Entry[Call]) -> bool:
    """Say whether a request has not ended."""
    return entry.phase is not Phase.ENDED


class _Set(Generic[Call]):
    """The states of one key."""

    __slots__ = ("deficit_s", "held", "running", "times")

    def __init__(self, times: StepTimes) -> None:
        self.running: dict[Entry[Call], None] = {}  # Those that may step, least recent first.
        self.held = 0
        self.deficit_s = _STEP_MIN_S  # So that the first one has the first turn.
        self.times = times


class Scheduler(Generic[Call]):
    """The requests of one continuously batched instance.

    Args:
        options: The limits.
    """

    def __init__(self, options: ContinuousOptions) -> None:
        self.options = options
        self._budget = math.inf if options.budget is None else options.budget
        self._waiting: Waiting[Call] = Waiting()
        self._sets: dict[Hashable, _Set[Call]] = {}
        # The learnt times of keys, also of those that have no states now; newest last.
        self._times: dict[Hashable, StepTimes] = {}
        self._turns: list[Hashable] = []  # The keys, in the order of their turns.
        self._turn = 0
        self._away: dict[Entry[Call], None] = {}
        self._used = 0.0
        self._held = 0
        self._active = 0  # Running or being admitted.
        self._arrivals = 0
        self._deadlines: list[tuple[float, int, Entry[Call]]] = []
        self._departures = Departures()
        self._parked: dict[Entry[Call], None] = {}  # Longest first.
        self._ending: dict[Entry[Call], None] = {}
        self._held_max = _HELD_PER_RUNNING * options.max_running
        self._blocked: Blocked[Call] = Blocked(self._waiting, options.max_running)
        # After a preemption nothing is admitted until a state has ended: what was preempted would
        # come back and be preempted again.
        self._is_short = False
        self._draining = False
        self._steps = self._admitted = self._preempted = 0

    # --- arrivals ---------------------------------------------------------------------------

    def add(self, entry: Entry[Call]) -> Refusal | None:
        """Let a new request wait.

        Returns:
            Why it is not taken; ``None``: it waits.
        """
        if self._draining:
            return Refusal.DRAINING
        if self._reservation(entry) > self._budget:
            return Refusal.TOO_LARGE
        if self._count_waiting() >= self.options.max_waiting + self._free_places():
            return Refusal.FULL
        self._arrivals += 1
        entry.arrival = self._arrivals
        self._waiting.add(entry)
        if entry.deadline < math.inf:
            heapq.heappush(self._deadlines, (entry.deadline, entry.arrival, entry))
            if len(self._deadlines) > _SWEEP_MIN + 2 * (self._held + self._count_waiting()):
                self._deadlines = [each for each in self._deadlines if _is_live(each[2])]
                heapq.heapify(self._deadlines)
        return None

    def cancel(self, entry: Entry[Call]) -> None:
        """End a request whose caller has gone, before the next step."""
        self._stop(entry, End.CANCELLED)

    def park(self, entry: Entry[Call], now: float) -> None:
        """Leave a state out of the steps, because its caller has not read what it has."""
        if entry.phase is Phase.RUNNING:
            self._leave_running(entry)
            entry.phase = Phase.PARKED
            entry.parked_at = now
            self._parked[entry] = None

    def unpark(self, entry: Entry[Call]) -> None:
        """Take a request up again whose caller has read on."""
        if entry.phase is Phase.PARKED:
            del self._parked[entry]
            entry.parked_at = math.inf
            self._enter_running(entry)
        elif entry.phase is Phase.AWAY:
            del self._away[entry]
            self._waiting.add(entry)

    def drain(self) -> None:
        """End what has never been admitted, and refuse what comes; all others go on."""
        self._draining = True
        for entry in [*self._waiting.entries(), *self._blocked]:
            if not entry.was_charged:
                self._stop(entry, End.DRAINED)

    def movable(self) -> list[Entry[Call]]:
        """Return the requests that have been admitted and do not end, but not who reads slowly.

        Those that are being admitted come later.
        """
        waiting = [*self._waiting.entries(), *self._blocked]
        found = [*self.held(), *(entry for entry in waiting if entry.was_charged)]
        return [entry for entry in found if entry.stopped is None]

    def send_away(self, entry: Entry[Call]) -> None:
        """Leave a request that waits to others, until ``unpark``."""
        entry.phase = Phase.AWAY
        if entry in self._blocked:
            self._blocked.remove(entry)
        else:
            self._waiting.remove(entry)
        self._away[entry] = None

    # --- between two steps ------------------------------------------------------------------

    def ending(self, now: float) -> list[tuple[Entry[Call], End]]:
        """Return the requests that have to end: for each of them the driver calls ``end``."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            self._stop(heapq.heappop(deadlines)[2], End.EXPIRED)
        return [(entry, entry.stopped) for entry in self._ending if entry.stopped is not None]

    def preempting(self, now: float) -> list[Entry[Call]]:
        """Return the states that have to go, because of the budget or of slow readers.

        For each of them the driver calls ``preempted``. Those that cannot be preempted any more
        are in ``ending``, which comes after this.
        """
        found: list[Entry[Call]] = []
        park_s = self.options.park_s
        if park_s is not None:
            for entry in self._parked:
                if now - entry.parked_at < park_s:
                    break
                found.append(entry)
        if self._used > self._budget:
            found += self._victims(self._used - sum(entry.reserved for entry in found), found)
        return found

    def preempted(
        self, entry: Entry[Call], snapshot: object, cost: float, *, moves: bool = False
    ) -> None:
        """Let a request wait again whose state is gone.

        Args:
            entry: Which one.
            snapshot: What it is resumed from; ``None``: it is admitted anew.
            cost: What it costs then.
            moves: It is left to others, as by ``send_away``.
        """
        is_away = moves or entry.phase is Phase.PARKED
        self._release(entry)
        entry.snapshot = snapshot
        entry.cost = cost
        entry.bound = max(entry.bound, cost)
        self._preempted += 1
        if self._reservation(entry) > self._budget:  # It would wait for ever, and all behind it.
            self._stop(entry, End.EXHAUSTED)
        if entry.stopped is not None or is_away:  # It ends in any case.
            entry.phase = Phase.AWAY
            self._away[entry] = None
        else:
            entry.preempts += 1
            self._is_short = True
            self._waiting.add(entry)

    def admitting(self, now: float) -> Entry[Call] | None:
        """Return the next request that is to be admitted; the driver calls ``admitted``.

        It takes its part of the budget from now on.
        """
        if self._is_short and self._held:
            return None
        self._is_short = False
        options, waiting, blocked = self.options, self._waiting, self._blocked
        has_free_key = len(self._sets) < options.max_keys

        def is_late(entry: Entry[Call]) -> bool:
            return self._is_late(entry, now)

        if has_free_key:
            blocked.free_key(is_late)
        while self._active < options.max_running and self._held < self._held_max:
            entry = waiting.first(is_late)
            if entry is None or self._used + self._reservation(entry) > self._budget:
                return None
            if has_free_key or entry.key in self._sets:
                if not blocked.may_be_passed:
                    return None
                blocked.note_pass()
                self._hold(waiting.take())
                return entry
            if not blocked.add(entry):
                return None
        return None

    def admitted(self, entry: Entry[Call], state: object, cost: float, bound: float = 0.0) -> None:
        """Take the state of a request that ``admitting`` has returned."""
        entry.state = state
        entry.snapshot = None
        entry.phase = Phase.RUNNING
        self._admitted += 1
        self._active -= 1  # _enter_running counts it.
        self._set_cost(entry, cost, bound)
        self._enter_running(entry)

    def choose(self) -> list[Entry[Call]]:
        """Return the states that share the next step; none: there is nothing to do."""
        turn = self._next_turn()
        if turn is None:
            return []
        running = turn.running
        count = min(len(running), self.options.max_running, self._step_size(turn))
        if count == len(running):
            return list(running)
        chosen = list(islice(running, count))
        for entry in chosen:  # They come last the next time.
            del running[entry]
            running[entry] = None
        return chosen

    def stepped(self, chosen: list[Entry[Call]], duration_s: float) -> None:
        """Learn how long a step took. Costs, parks and ends are reported for themselves."""
        self._steps += 1
        self._departures.step(duration_s)
        turn = self._sets.get(chosen[0].key)
        if turn is not None:
            turn.times.learn(len(chosen), duration_s)
            turn.deficit_s -= max(duration_s, _STEP_MIN_S)

    def set_cost(self, entry: Entry[Call], cost: float) -> None:
        """Take what a held state costs now."""
        if entry.phase in _HELD:
            self._set_cost(entry, cost, 0.0)

    def end(self, entry: Entry[Call]) -> None:
        """Forget a request; its state is released by the driver. Idempotent."""
        phase = entry.phase
        if phase is Phase.ENDED:
            return
        if phase in _HELD:
            self._departures.leave(entry.reserved)
            self._release(entry)
            self._is_short = False
        entry.phase = Phase.ENDED
        if entry in self._blocked:
            self._blocked.remove(entry)
        elif phase is Phase.WAITING:
            self._waiting.remove(entry)
        self._away.pop(entry, None)
        self._ending.pop(entry, None)

    # --- what is known ----------------------------------------------------------------------

    def next_wakeup(self, now: float) -> float | None:
        """Return when something is to be done though nobody reports anything; ``None``: never."""
        times = []
        while self._deadlines and self._deadlines[0][2].phase is Phase.ENDED:
            heapq.heappop(self._deadlines)
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self._parked and self.options.park_s is not None:
            times.append(next(iter(self._parked)).parked_at + self.options.park_s)
        return max(now, min(times)) if times else None

    def load(self) -> Load:
        """Return what is held now; from any thread."""
        # Copies, since the thread that steps may change both meanwhile.
        sets, blocked = tuple(self._sets.values()), tuple(self._blocked)
        waiting = self._count_waiting()
        waiting_cost = self._waiting.cost + sum(entry.cost for entry in blocked)
        slowest = max(sets, key=self._expected_s, default=None)
        step_s = 0.0 if slowest is None else self._expected_s(slowest)
        return Load(
            running=self._active,
            parked=len(self._parked),
            waiting=waiting,
            waiting_cost=waiting_cost,
            used=self._used,
            step_s=step_s,
            step_least_s=0.0 if slowest is None else slowest.times.predict(1),
            step_most_s=0.0 if slowest is None else slowest.times.predict(self.options.max_running),
            wait_s=self._departures.wait_s(
                ahead=waiting,
                ahead_cost=waiting_cost,
                places=self.options.max_running - self._active,
                free=self._budget - self._used,
            ),
            steps=self._steps,
            admitted=self._admitted,
            preempted=self._preempted,
        )

    def held(self) -> list[Entry[Call]]:
        """Return the requests that have a state, or are getting one."""
        running = [entry for each in self._sets.values() for entry in each.running]
        return [*running, *self._parked]

    # --- inside -----------------------------------------------------------------------------

    def _stop(self, entry: Entry[Call], why: End) -> None:
        if entry.phase is not Phase.ENDED and entry.stopped is None:
            entry.stopped = why
            self._ending[entry] = None

    def _reservation(self, entry: Entry[Call]) -> float:
        return entry.bound if self.options.reserve == "bound" else entry.cost

    def _count_waiting(self) -> int:
        return len(self._waiting) + len(self._blocked) + len(self._away)

    def _free_places(self) -> int:
        return 0 if self._is_short else max(0, self.options.max_running - self._active)

    def _is_late(self, entry: Entry[Call], now: float) -> bool:
        """Say whether a deadline passes before the end of a single step."""
        if entry.deadline == math.inf:
            return False
        times = self._times.get(entry.key)
        return entry.deadline < now + (0.0 if times is None else times.predict(1))

    def _times_of(self, key: Hashable) -> StepTimes:
        times = self._times.pop(key, None) or StepTimes()
        self._times[key] = times
        if len(self._times) > _TIMES_MAX + len(self._sets):
            for oldest in self._times:
                if oldest not in self._sets and oldest != key:
                    del self._times[oldest]
                    break
        return times

    @staticmethod
    def _expected_s(known: _Set[Call]) -> float:
        return known.times.predict(max(1, len(known.running)))

    def _hold(self, entry: Entry[Call]) -> None:
        entry.phase = Phase.ADMITTING
        known = self._sets.get(entry.key)
        if known is None:
            known = self._sets[entry.key] = _Set(self._times_of(entry.key))
            self._turns.append(entry.key)
        known.held += 1
        self._held += 1
        self._active += 1
        entry.reserved = self._reservation(entry)
        self._used += entry.reserved

    def _release(self, entry: Entry[Call]) -> None:
        """Free what a held request takes."""
        if entry.phase is Phase.RUNNING:
            self._leave_running(entry)
        elif entry.phase is Phase.ADMITTING:
            self._active -= 1
        self._parked.pop(entry, None)
        entry.parked_at = math.inf
        self._held -= 1
        self._used = self._used - entry.reserved if self._held else 0.0
        entry.reserved = 0.0
        known = self._sets[entry.key]
        known.held -= 1
        if not known.held:
            del self._sets[entry.key]
            place = self._turns.index(entry.key)
            del self._turns[place]
            if place < self._turn:
                self._turn -= 1

    def _enter_running(self, entry: Entry[Call]) -> None:
        entry.phase = Phase.RUNNING
        self._sets[entry.key].running[entry] = None
        self._active += 1

    def _leave_running(self, entry: Entry[Call]) -> None:
        del self._sets[entry.key].running[entry]
        self._active -= 1

    def _set_cost(self, entry: Entry[Call], cost: float, bound: float) -> None:
        entry.cost = cost
        entry.bound = max(entry.bound, cost, bound)
        reserved = self._reservation(entry)
        self._used += reserved - entry.reserved
        entry.reserved = reserved

    def _victims(self, used: float, besides: list[Entry[Call]]) -> list[Entry[Call]]:
        """Return whom to preempt so that the others fit; end those who cannot be."""
        gone = set(besides)
        held = [entry for entry in self.held() if entry not in gone and entry.stopped is None]
        held.sort(key=lambda entry: (-entry.priority, entry.arrival))
        found: list[Entry[Call]] = []
        most = self.options.max_preempts
        last: deque[Entry[Call]] = deque()
        while used > self._budget and held:
            entry = held.pop()
            if entry.preempts >= most or not held:
                last.append(entry)
                continue
            found.append(entry)
            used -= entry.reserved
        while used > self._budget and last:  # The lowest and youngest of them first.
            entry = last.popleft()
            self._stop(entry, End.EXHAUSTED)
            used -= entry.reserved
        return found

    def _next_turn(self) -> _Set[Call] | None:
        """Return the set whose turn it is."""
        turns = self._turns
        if len(turns) == 1:
            only = self._sets[turns[0]]
            only.deficit_s = 0.0
            return only if only.running else None
        ready = [each for each in self._sets.values() if each.running]
        if not ready:
            return None
        if len(ready) == 1:
            return ready[0]
        quantum_s = max(_STEP_MIN_S, *(self._expected_s(each) for each in ready))
        while True:
            if self._turn >= len(turns):
                self._turn = 0
            current = self._sets[turns[self._turn]]
            if current.running and current.deficit_s > 0.0:
                return current
            if not current.running:
                current.deficit_s = 0.0
            self._turn = (self._turn + 1) % len(turns)
            following = self._sets[turns[self._turn]]
            following.deficit_s += quantum_s

    def _step_size(self, turn: _Set[Call]) -> int:
        """Return how many states a step may have to take no longer than it should."""
        most, step_ms = self.options.max_running, self.options.step_ms
        if step_ms is None or not turn.times.is_known:
            return most
        predict, most_s = turn.times.predict, step_ms / 1000
        return max(1, bisect.bisect_right(range(1, most + 1), most_s, key=predict))
