"""Reports what a process's batcher does now to the routers that send calls to the process.

Routers fill batches that are about to leave instead of opening others. They need to know when the
running step ends, until when the next one waits for more items, and how long a step takes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyserve.batching.steps import StepTimes

if TYPE_CHECKING:
    from pyserve.batching.lanes import Batch
    from pyserve.batching.queue import BatchQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A batcher at one moment; a step is one run of its function.

    Attributes:
        size_max: The most calls of one step.
        running: Calls in the steps that run.
        busy_s: Until an executor is expected to be free; ``None``: one is.
        window_s: How long the first that waits may wait for others; ``None``: nobody waits, or for
            an executor.
        step_fixed_s, step_per_call_s: What a step is expected to take, and more for each call; 0
            while nothing is known.
    """

    size_max: int
    running: int
    busy_s: float | None
    window_s: float | None
    step_fixed_s: float
    step_per_call_s: float


class Steps:
    """The steps of one queue: which ones run, and how long they take."""

    def __init__(self) -> None:
        self._times = StepTimes()
        self._running: dict[object, tuple[float, int]] = {}

    def begin(self, run: object, batch: Batch[object], now: float) -> None:
        """Note that ``run`` has begun with ``batch``."""
        self._running[run] = (now, len(batch.items))

    def is_running(self, run: object) -> bool:
        """Return whether ``run`` has begun and not ended."""
        return run in self._running

    def end(self, run: object, now: float) -> float:
        """Note that ``run`` has ended and return how long it took, in seconds."""
        return now - self._running.pop(run)[0]

    def learn(self, size: int, duration_s: float) -> None:
        """Take the time of one step that has not failed."""
        self._times.learn(size, duration_s)

    def state(
        self, now: float, *, size_max: int, executors: int, wakeup: float | None
    ) -> StepState:
        """Return the state at ``now``; ``wakeup`` is when the next step leaves by itself."""
        ends = [started + self._times.predict(size) for started, size in self._running.values()]
        is_busy = len(ends) >= executors
        return StepState(
            size_max=size_max,
            running=sum(size for _, size in self._running.values()),
            busy_s=max(0.0, min(ends) - now) if is_busy else None,
            window_s=None if wakeup is None or is_busy else max(0.0, wakeup - now),
            step_fixed_s=self._times.fixed_s,
            step_per_call_s=self._times.per_item_s,
        )


Listener = Callable[[StepState | None], object]


class Activity:
    """The batchers of a process, for scrapes; and a single batcher's state, for one listener.

    With two batchers, a router could not know whose batch a call would join, so no states are
    reported any more. Reports may come from the threads of several loops.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._queue: weakref.ref[object] | None = None
        # They end with the objects that they belong to, without a report.
        self._queues: weakref.WeakSet[BatchQueue] = weakref.WeakSet()
        self._has_several = False

    @property
    def is_heard(self) -> bool:
        """Whether a report reaches anybody."""
        return self._listener is not None and not self._has_several

    def note(self, queue: BatchQueue) -> None:
        """Remember a queue for as long as it lives."""
        with self._lock:
            self._queues.add(queue)

    def queues(self) -> list[BatchQueue]:
        """Return those that live."""
        with self._lock:
            return list(self._queues)

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with each report, ``None`` at their end. It must not wait.

        It takes the place of another one, for which the reports end.
        """
        with self._lock:
            if self._listener is not None:
                self._listener(None)
            self._listener = listener

    def report(self, queue: object, state: StepState) -> None:
        """Report what ``queue`` does now."""
        with self._lock:
            known = None if self._queue is None else self._queue()
            if known is None:
                self._queue = weakref.ref(queue)
            elif known is not queue:
                self._has_several = True
            listener = self._listener
            if listener is not None:
                listener(None if self._has_several else state)


PROCESS_ACTIVITY = Activity()
"""The activity of all batchers in this process, global because decorators make them."""
