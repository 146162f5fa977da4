"""Rules for when a batch leaves, played in virtual time on arrivals that are all alike.

``play`` drives the shipping ``Batcher`` as its asyncio driver does. ``play_frozen`` is a model of
the seeds' rule: who is in a batch is decided by its timer, before an executor is free.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyserve.batching import Batch, Batcher, BatchOptions

# Learning and the way into the steady state are not measured.
WARMUP_SHARE = 0.1


@dataclass(frozen=True)
class Step:
    """A model whose batch of n takes ``fixed_s + per_item_s * n``."""

    fixed_s: float
    per_item_s: float

    def duration_s(self, size: float) -> float:
        return self.fixed_s + self.per_item_s * size

    def capacity(self, size: int) -> float:
        """Return the requests/s that full batches sustain."""
        return size / self.duration_s(size)


@dataclass(frozen=True)
class Outcome:
    """What one rule brought.

    Attributes:
        answered_per_s: Of the arrivals that were measured, until the last of them came.
        answers_all: Whether the rule keeps up: what waits does not grow with time.
        mean_s, p50_s, p99_s: From arrival to answer.
        mean_batch: Requests in a batch.
    """

    answered_per_s: float
    answers_all: bool
    mean_s: float
    p50_s: float
    p99_s: float
    mean_batch: float


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """Return the times of ``count`` arrivals of an open loop."""
    draw = random.Random(seed)
    return list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))


def play(
    options: BatchOptions,
    arrivals: Sequence[float],
    step: Step,
    *,
    think: Callable[[], float] | None = None,
    count: int = 0,
) -> Outcome:
    """Play the shipping state machine; its executors are ``max_concurrent_batches``.

    Args:
        options: The rule.
        arrivals: When calls come, in order.
        step: What a batch costs.
        think: Makes it a closed loop: whoever is answered calls again after so many seconds.
        count: Calls of the closed loop.
    """
    batcher: Batcher[int] = Batcher(options, lambda _: True)
    coming = list(arrivals)  # A sorted list is a heap.
    began: list[float] = []
    ends: list[float] = []
    running: list[tuple[float, int, float, Batch[int]]] = []
    serial = itertools.count()
    sizes: list[int] = []
    while coming or running or len(batcher):
        wakeup = batcher.next_wakeup()
        end = running[0][0] if running else math.inf
        arrival = coming[0] if coming else math.inf
        now = min(arrival, end, math.inf if wakeup is None else wakeup)
        if end == now:
            _, _, started, batch = heapq.heappop(running)
            for item in batch.items:
                ends[item] = now
                if think is not None and len(began) + len(coming) < count:
                    heapq.heappush(coming, now + think())
            batcher.learn(batch.size, now - started)
            batcher.complete(batch, now)
        elif arrival == now:
            heapq.heappop(coming)
            batcher.add(len(began), now)
            began.append(now)
            ends.append(math.inf)
        while (taken := batcher.take(now)) is not None:
            done = now + step.duration_s(taken.size)
            heapq.heappush(running, (done, next(serial), now, taken))
            sizes.append(len(taken.items))
    return summarize(began, ends, sizes)


def play_frozen(window_s: float, size_max: int, arrivals: Sequence[float], step: Step) -> Outcome:
    """Play the seeds' rule on one executor.

    A batch opens with its first request and closes when it is full or the window is over; then
    it queues for the executor, and nobody joins it any more.
    """
    closed: deque[tuple[float, list[int]]] = deque()
    index, last = 0, len(arrivals)
    while index < last:
        opened = arrivals[index]
        members = [index]
        index += 1
        while index < last and len(members) < size_max and arrivals[index] <= opened + window_s:
            members.append(index)
            index += 1
        is_full = len(members) == size_max
        closed.append((arrivals[members[-1]] if is_full else opened + window_s, members))
    ends = [math.inf] * last
    sizes = [len(members) for _, members in closed]
    free = 0.0
    for ready, members in closed:
        free = max(free, ready) + step.duration_s(len(members))
        for member in members:
            ends[member] = free
    return summarize(arrivals, ends, sizes)


def summarize(arrivals: Sequence[float], ends: Sequence[float], sizes: Sequence[int]) -> Outcome:
    """Make figures of arrivals, answers and batches."""
    first = int(len(arrivals) * WARMUP_SHARE)
    begin, over = arrivals[first], arrivals[-1]
    latencies = sorted(end - at for at, end in zip(arrivals[first:], ends[first:], strict=True))
    answered = sum(begin <= end <= over for end in ends)
    return Outcome(
        answered_per_s=answered / (over - begin),
        answers_all=_keeps_up(arrivals, ends),
        mean_s=statistics.fmean(latencies),
        p50_s=latencies[len(latencies) // 2],
        p99_s=latencies[int(len(latencies) * 0.99)],
        mean_batch=statistics.fmean(sizes),
    )


def _keeps_up(arrivals: Sequence[float], ends: Sequence[float]) -> bool:
    # A rule that falls behind has waits that grow with time: the last tenth waits several times
    # as long as the second one. In a steady state both are alike but for chance.
    tenth = max(1, len(arrivals) // 10)
    early = statistics.fmean(
        e - a for a, e in zip(arrivals[tenth : 3 * tenth], ends[tenth : 3 * tenth], strict=True)
    )
    late = statistics.fmean(e - a for a, e in zip(arrivals[-tenth:], ends[-tenth:], strict=True))
    return late < 3 * early


Rule = Callable[[Sequence[float], Step], Outcome]
WINDOWS_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


def rules(size_max: int) -> dict[str, Rule]:
    """Return every contender by name; ``frozen`` are the seeds' rule."""

    def shipping(**options: object) -> Rule:
        made = BatchOptions(max_batch_size=size_max).updated(**options)
        return lambda arrivals, step: play(made, arrivals, step)

    def frozen(window_s: float) -> Rule:
        return lambda arrivals, step: play_frozen(window_s, size_max, arrivals, step)

    found = {
        "auto": shipping(batch_wait_timeout_s="auto"),
        "defaults": shipping(),
        "unbatched": shipping(max_batch_size=1, batch_wait_timeout_s=0.0),
    }
    for window_s in WINDOWS_S:
        name = f"{window_s * 1000:g} ms"
        found[f"window {name}"] = shipping(batch_wait_timeout_s=window_s)
        found[f"frozen {name}"] = frozen(window_s)
    return found
