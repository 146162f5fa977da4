"""When a batch leaves, and who is in it: a pure state machine without loop, clock or I/O.

Items wait in arrival order, in one lane for each key (the model id). A batch leaves when an
executor is free and its lane says so: it is full, its oldest item has waited long enough, or
somebody asked for it. While every executor is busy the batch stays open for newcomers (late
binding); one that is full is made already. The driver in ``queue.py`` calls it with the loop's
time.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic

from pyserve.batching.auto import AutoWait, Waiting
from pyserve.batching.lanes import Batch, Drop, Entry, Item, Lane, Ready, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyserve.batching.options import BatchOptions

_INFINITE = math.inf
# Fewer items are never swept for callers who have gone; arbitrary.
_SWEEP_MIN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStats:
    """Counts since the first call.

    Attributes:
        batches, items: How many have left to run.
        reasons: Batches by the reason why they left.
        cancelled: Items whose callers had gone before the run.
        dropped: Items that were refused, by reason.
        waiting, running: Items in the queue, and batches in the executors, now.
        fixed_s, per_item_s: The learnt step time of the newest model, ``b`` and ``a`` of
            ``t(n) = a n + b``; 0 while nothing is known.
    """

    batches: int
    items: int
    reasons: Mapping[Reason, int]
    cancelled: int
    dropped: Mapping[Drop, int]
    waiting: int
    running: int
    fixed_s: float
    per_item_s: float

    @property
    def mean_batch_size(self) -> float:
        """Items of a batch on average, 0 before the first one."""
        return self.items / self.batches if self.batches else 0.0


class Batcher(Generic[Item]):
    """Collects items and says when a batch leaves.

    Args:
        options: The limits.
        is_live: Whether an item's caller still waits; others are dropped before the run.
    """

    def __init__(self, options: BatchOptions, is_live: Callable[[Item], bool]) -> None:
        self._is_live = is_live
        self._lanes: dict[str, Lane[Item]] = {}  # Lanes with items only.
        self._count = 0  # items of all lanes
        self._running = 0  # above max_concurrent_batches only after that was lowered
        self._idle_since = -_INFINITE  # when the newest executor became free
        self._tick = -_INFINITE  # with a stride: nothing leaves before
        self._draining = False
        self.can_prepare = False  # Whether `prepare` may find what it has not made yet.
        self._sweep_at = _SWEEP_MIN  # with this many items `add` looks for gone callers
        self._drops: list[tuple[Item, Drop]] = []
        self._reasons: Counter[Reason] = Counter()
        self._dropped: Counter[Drop] = Counter()
        self._items = self._cancelled = 0
        self._newest_key = ""
        self._auto: AutoWait | None = None
        self.configure(options)

    def __len__(self) -> int:
        return self._count

    def configure(self, options: BatchOptions) -> None:
        """Replace the limits, also for items that wait already; call ``take`` afterwards."""
        self.options = options
        for lane in self._lanes.values():
            lane.ready = None
        if not options.is_auto:
            self._auto = None
        elif self._auto is None:
            self._auto = AutoWait()

    # --- what happens ----------------------------------------------------------------------

    def add(
        self,
        item: Item,
        now: float,
        *,
        key: str = "",
        deadline: float = _INFINITE,
        size: float = 1,
    ) -> bool:
        """Queue an item.

        Args:
            item: What the batch will hold.
            now: The time, as everywhere.
            key: Items with different keys are never in one batch.
            deadline: When its caller stops to wait.
            size: What it takes of ``max_batch_size``.

        Returns:
            Whether ``take``, ``drops`` and ``next_wakeup`` have news.
        """
        options = self.options
        if size > options.max_batch_size:
            return self._drop(item, Drop.OVERSIZED)
        if self._auto is not None:
            learnt = self._auto.of(key)
            learnt.on_arrival(now)
            if deadline < _INFINITE and learnt.is_hopeless(size, deadline, now):
                return self._drop(item, Drop.HOPELESS)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        if not self._count and options.stride_s and now >= self._tick:
            self._tick = _next_tick(now, options.stride_s)
        lane.waiting.append((now, deadline, size, item))
        lane.size += size
        self._count += 1
        if deadline < _INFINITE:
            lane.has_deadlines = True
        if self._count >= self._sweep_at:
            self._sweep()
        if self._running >= options.max_concurrent_batches:
            if lane.ready is None and lane.size >= options.max_batch_size:
                self.can_prepare = True
            return False  # The end of a running batch asks again.
        is_sooner = deadline < lane.deadline_within(len(lane.waiting) - 1)
        if is_sooner:
            lane.deadline = deadline
        return (
            is_sooner
            or len(lane.waiting) == 1
            or lane.size >= options.max_batch_size
            or self._auto is not None
            or self._draining
        )

    def complete(self, batch: Batch[Item], now: float) -> None:
        """Record the end of a running batch: its executor is free."""
        if self._running < 1:
            raise AssertionError("complete() without a running batch")
        options = self.options
        if self._running >= options.max_concurrent_batches:
            # Items that came while no batch could leave have not been looked at.
            for lane in self._lanes.values():
                lane.deadline = None
            if options.stride_s and now >= self._tick:
                self._tick = _next_tick(now, options.stride_s)
        self._running -= 1
        self._idle_since = now
        if self._auto is not None:
            after = self._lanes.get(batch.key)
            waiting = 0 if after is None else len(after.waiting)
            self._auto.of(batch.key).on_answered(batch.arrivals, waiting, now)

    def learn(self, size: float, duration_s: float, key: str = "") -> None:
        """Record how long a batch took in its executor. Call it before ``complete``."""
        if self._auto is not None:
            self._newest_key = key
            self._auto.of(key).learn(size, duration_s)

    def flush(self) -> None:
        """Let everything that waits now leave as soon as an executor is free."""
        for lane in self._lanes.values():
            lane.flushing = len(lane.waiting)

    def drain(self) -> None:
        """From now on, let everything leave as soon as an executor is free."""
        self._draining = True

    # --- what follows ----------------------------------------------------------------------

    def take(self, now: float) -> Batch[Item] | None:
        """Return a batch that leaves now, counted as running, or ``None``."""
        options = self.options
        while self._count and self._running < options.max_concurrent_batches:
            lane, reason = self._choose(now)
            if lane is None:
                break
            batch = self._close(lane, reason, now)
            if batch is not None:
                self._running += 1
                self._reasons[reason] += 1
                self._items += len(batch.items)
                return batch
        if options.stride_s and now >= self._tick:
            self._tick = _next_tick(now, options.stride_s)
        return None

    def prepare(self, now: float) -> Batch[Item] | None:
        """Make the next full batch while all executors are busy, and return it, if there is one.

        ``take`` returns the same object, unless somebody in it has gone or is late by then.
        """
        self.can_prepare = False
        size_max = self.options.max_batch_size
        while full := [lane for lane in self._lanes.values() if lane.size >= size_max]:
            lane = min(full, key=lambda each: each.waiting[0][0])  # As `_choose` decides.
            if lane.ready is None:
                lane.ready = self._gather(lane, Reason.FULL, now)
            if lane.ready is not None:
                return lane.ready.batch
        return None

    def drops(self) -> list[tuple[Item, Drop]]:
        """Return the items refused since the last call; their callers wait for an answer."""
        if not self._drops:
            return []
        drops, self._drops = self._drops, []
        return drops

    def next_wakeup(self) -> float | None:
        """Return when ``take`` should be asked again, ``None`` until something happens."""
        if not self._count or self._running >= self.options.max_concurrent_batches:
            return None
        size_max = self.options.max_batch_size
        wakeup = min(
            min(self._leaves_at(lane)[0], lane.deadline_within(size_max))
            for lane in self._lanes.values()
        )
        return None if wakeup == _INFINITE else wakeup

    def stats(self) -> BatchStats:
        """Return what has happened so far."""
        steps = None if self._auto is None else self._auto.of(self._newest_key).steps
        return BatchStats(
            batches=self._reasons.total(),
            items=self._items,
            reasons=dict(self._reasons),
            cancelled=self._cancelled,
            dropped=dict(self._dropped),
            waiting=self._count,
            running=self._running,
            fixed_s=0.0 if steps is None else steps.fixed_s,
            per_item_s=0.0 if steps is None else steps.per_item_s,
        )

    # --- decisions -------------------------------------------------------------------------

    def _leaves_at(self, lane: Lane[Item]) -> tuple[float, Reason]:
        """Return when the batch at the head of a lane leaves, if nothing else happens."""
        options = self.options
        opened = lane.waiting[0][0]
        is_full = lane.size >= options.max_batch_size
        if lane.flushing or self._draining:
            asked = Reason.DRAIN if self._draining else Reason.FLUSH
            return opened, Reason.FULL if is_full else asked
        if is_full:
            return max(opened, self._tick), Reason.FULL
        if not options.allow_small_batch:
            return _INFINITE, Reason.FULL
        wait_s = options.batch_wait_timeout_s
        if wait_s == "auto":
            leaves, is_deadline = self._leaves_by_auto(lane, opened)
            reason = Reason.DEADLINE if is_deadline else Reason.IDLE
        else:
            leaves, reason = opened + wait_s, Reason.WINDOW
        if not options.stride_s:
            return leaves, reason
        return max(self._tick, _tick_from(leaves, options.stride_s)), Reason.STRIDE

    def _leaves_by_auto(self, lane: Lane[Item], opened: float) -> tuple[float, bool]:
        assert self._auto is not None, "configure() makes it"
        options = self.options
        waiting = Waiting(
            len(lane.waiting),
            lane.size,
            since=max(opened, self._idle_since),
            deadline=lane.deadline_within(options.max_batch_size),
        )
        free = options.max_concurrent_batches - self._running
        return self._auto.of(lane.key).leave_at(waiting, options, free)

    def _choose(self, now: float) -> tuple[Lane[Item] | None, Reason]:
        """Return the lane that leaves first: age counts, and up to twice for a full batch.

        So full batches go first, but nobody waits for more than twice as long as they do.
        """
        size_max = self.options.max_batch_size
        chosen: Lane[Item] | None = None
        chosen_reason, chosen_score = Reason.FULL, -1.0
        for lane in tuple(self._lanes.values()):
            leaves, reason = self._leaves_at(lane)
            # `_close` looks at each item of a full batch that leaves.
            closes = leaves <= now and reason is Reason.FULL
            if not closes and lane.deadline_within(size_max) <= now:
                self._prune(lane, now, len(lane.waiting))
                if not lane.waiting:
                    continue
                leaves, reason = self._leaves_at(lane)
            if leaves > now:
                continue
            score = (now - lane.waiting[0][0]) * (1 + min(1, lane.size / size_max))
            if score > chosen_score:
                chosen, chosen_reason, chosen_score = lane, reason, score
        return chosen, chosen_reason

    def _close(self, lane: Lane[Item], reason: Reason, now: float) -> Batch[Item] | None:
        """Take the batch out of its lane, or only callers who have gone and return ``None``."""
        ready = lane.ready
        is_made = (
            ready is not None
            and reason is ready.batch.reason
            and ready.deadline > now
            and all(map(self._is_live, ready.batch.items))
        )
        if not is_made:
            ready = self._gather(lane, reason, now)
        if ready is None:
            return None
        batch = ready.batch
        lane.remove(len(batch.items), batch.size)
        self._count -= len(batch.items)
        if not lane.waiting:
            del self._lanes[lane.key]
        self.can_prepare = bool(self._lanes)
        return batch

    def _gather(self, lane: Lane[Item], reason: Reason, now: float) -> Ready[Item] | None:
        """Return the batch at the head of a lane, or let callers go who have gone or are late."""
        size_max = self.options.max_batch_size
        is_live = self._is_live
        items: list[Item] = []
        size_sum: float = 0
        earliest = _INFINITE
        seen = 0
        for _, deadline, size, item in lane.waiting:
            if size_sum >= size_max:
                break
            if deadline > now and size <= size_max and is_live(item):
                if size_sum + size > size_max:
                    break
                items.append(item)
                size_sum += size
                earliest = min(earliest, deadline)
            seen += 1
        if seen > len(items):
            # They neither fill a batch nor open its window, so the decision is made once more.
            self._prune(lane, now, seen)
            return None
        # All of them are in it.
        arrivals = [entry[0] for entry in islice(lane.waiting, seen)]
        return Ready(Batch(items, reason, lane.key, size_sum, arrivals), earliest)

    def _sweep(self) -> None:
        # A storm of cancels during one long run must not pile up; twice as many until the next
        # time make it one look per item.
        for lane in tuple(self._lanes.values()):
            self._prune(lane, -_INFINITE, len(lane.waiting))
        self._sweep_at = max(_SWEEP_MIN, 2 * self._count)

    def _prune(self, lane: Lane[Item], now: float, count: int) -> None:
        """Let go of every caller among the first ``count`` who has gone or, at ``now``, is late."""
        entries = [lane.waiting.popleft() for _ in range(count)]
        keeps = [self._keep(entry, now) for entry in entries]
        lane.waiting.extendleft(
            entry for entry, keep in zip(reversed(entries), reversed(keeps), strict=True) if keep
        )
        self._count -= keeps.count(False)
        gone = sum(size for (_, _, size, _), keep in zip(entries, keeps, strict=True) if not keep)
        lane.size = lane.size - gone if lane.waiting else 0
        lane.flushing -= keeps[: lane.flushing].count(False)
        lane.deadline = None
        lane.ready = None
        if not lane.waiting:
            del self._lanes[lane.key]

    def _keep(self, entry: Entry[Item], now: float) -> bool:
        _, deadline, size, item = entry
        if not self._is_live(item):
            self._cancelled += 1
            return False
        if deadline <= now:
            self._drop(item, Drop.EXPIRED)
            return False
        if size > self.options.max_batch_size:  # It was lowered meanwhile.
            self._drop(item, Drop.OVERSIZED)
            return False
        return True

    def _drop(self, item: Item, why: Drop) -> bool:
        self._drops.append((item, why))
        self._dropped[why] += 1
        return True


def _tick_from(moment: float, stride_s: float) -> float:
    """Return the first multiple of ``stride_s`` that is not before ``moment``."""
    tick = math.ceil(moment / stride_s) * stride_s
    return tick if tick >= moment else tick + stride_s


def _next_tick(now: float, stride_s: float) -> float:
    """Return the first multiple of ``stride_s`` after ``now``."""
    tick = (math.floor(now / stride_s) + 1) * stride_s
    return tick if tick > now else tick + stride_s
