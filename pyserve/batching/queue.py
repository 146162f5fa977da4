"""The asyncio end of a batcher: callers' futures in, runs of the batched function out.

One future per item and one task per batch; never a task per item. A queue belongs to one
event loop and is used from its thread only. Its bound is that of its callers: the replica's
gate admits ``max_ongoing_requests`` of them.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from grpc import StatusCode

from pyserve.batching.batcher import Batcher, BatchStats
from pyserve.batching.lanes import Batch, Drop
from pyserve.batching.options import BatchOptions, size_of
from pyserve.batching.runs import Call, Caller, Run
from pyserve.batching.steps import PROCESS_ACTIVITY, Steps
from pyserve.batching.streams import BatchStream, StreamCall, StreamRun
from pyserve.errors import BackPressure, BatchError, PyserveError, RequestTimeout
from pyserve.observe.delays import MEMBERS_MAX, PROCESS_DELAYS, BatchDelay, wall_clock_from
from pyserve.observe.metrics.families import SIZE_BOUNDS, Tally
from pyserve.observe.traces import IS_SAMPLED
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.request import CURRENT, LOCAL_REPLICA, Source


class BatchQueue:
    """Runs ``function`` on batches of calls.

    Args:
        function: Takes one list for each argument of a call, all of the batch's length.
        label: What messages call it, e.g. ``Digits.Classify``.
        options: Limits of a batch.
        loop: The running loop.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        label: str,
        options: BatchOptions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self.is_stream = inspect.isasyncgenfunction(function)
        self._function = function
        self._label = label
        self._options = options
        self._batcher: Batcher[Any] = Batcher(options, _reads if self.is_stream else _waits)
        # uvloop counts whole milliseconds from the start of the turn, too coarse for steps.
        is_coarse = type(loop).__module__.partition(".")[0] == "uvloop"
        self._clock = time.monotonic if is_coarse else loop.time
        self._is_coarse = is_coarse
        self._soon: asyncio.Handle | None = None
        self._preparing: asyncio.Handle | None = None
        self._prepared: Run | StreamRun | None = None  # Not begun, of the next full batch.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._tasks: set[asyncio.Task[None]] = set()  # The loop keeps weak references only.
        self._idle: asyncio.Future[None] | None = None  # `drain` waits for it
        self._steps = Steps()
        self.measures = BatchMeasures()
        PROCESS_ACTIVITY.note(self)
        # That of the first call; all others are for the same instance.
        self._replica = LOCAL_REPLICA.get()
        self._traces = PROCESS_TRACING.batches(label)

    @property
    def label(self) -> str:
        """What messages call the function."""
        return self._label

    @property
    def size_max(self) -> float:
        """The most that a batch may have."""
        return self._options.max_batch_size

    @property
    def is_busy(self) -> bool:
        """Whether calls wait or run here, which a closed loop would never answer. Any thread."""
        return not self.loop.is_closed() and bool(self._tasks or len(self._batcher))

    # --- callers ---------------------------------------------------------------------------

    def submit(self, arguments: tuple[object, ...]) -> asyncio.Future[Any]:
        """Queue one call. Cancelling the future takes it out of its batch.

        Raises:
            Exception: What ``batch_size_fn`` raised.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        self.submit_for(future, CURRENT.get(), arguments)
        return future

    def submit_for(
        self, caller: Caller, source: Source | None, arguments: tuple[object, ...]
    ) -> None:
        """Queue one call whose result goes to ``caller``, with the request of ``source``.

        Raises:
            Exception: What ``batch_size_fn`` raised.
        """
        if self._traces is not None and source is not None and IS_SAMPLED.get():
            source = self._traces.member(source)
        self._add(Call(arguments, caller, source), arguments, source)

    def open(self, arguments: tuple[object, ...]) -> BatchStream:
        """Queue one call of an async generator and return the iterator of its results.

        Raises:
            Exception: What ``batch_size_fn`` raised.
        """
        source = CURRENT.get()
        if self._traces is not None and source is not None and IS_SAMPLED.get():
            source = self._traces.member(source)
        call = StreamCall(arguments, source, self.loop)
        self._add(call, arguments, source)
        return BatchStream(call, self.loop)

    def _add(self, call: object, arguments: tuple[object, ...], source: Source | None) -> None:
        size_fn = self._options.batch_size_fn
        size = 1 if size_fn is None else size_of(size_fn, arguments)
        now = self._clock()
        if source is None:
            has_news = self._batcher.add(call, now, size=size)
        else:
            model_id, deadline = source.model_and_deadline()
            has_news = self._batcher.add(
                call,
                now,
                key=model_id,
                deadline=math.inf if deadline is None else deadline,
                size=size,
            )
        if has_news:
            self._look_soon()
        elif self._batcher.can_prepare:
            self._prepare_soon()

    # --- limits and ends ---------------------------------------------------------------------

    def configure(self, options: BatchOptions) -> None:
        """Replace the limits, for the calls that wait too."""
        self._options = options
        self._batcher.configure(options)
        self._look_soon()

    def flush(self) -> None:
        """Let the calls that wait now leave without waiting for more."""
        self._batcher.flush()
        self._look_soon()

    async def drain(self) -> None:
        """Let every call leave without a wait, and return when no call waits or runs any more."""
        self._batcher.drain()
        self._look_soon()
        while self._tasks or len(self._batcher):
            if self._idle is None:
                self._idle = self.loop.create_future()
            await asyncio.shield(self._idle)

    def stats(self) -> BatchStats:
        """Return what has happened so far."""
        return self._batcher.stats()

    # --- the loop ----------------------------------------------------------------------------

    def _look_soon(self) -> None:
        # Decided at the end of the turn: items that arrive in one turn leave together, and the
        # function does not start inside the code of a caller.
        if self._soon is None:
            self._soon = self.loop.call_soon(self._on_soon)

    def _prepare_soon(self) -> None:
        # Not at once: callers that were answered at the end of a step go first.
        if self._preparing is None:
            self._preparing = self.loop.call_soon(self._prepare)

    def _prepare(self) -> None:
        """Make the run of the next full batch while the step that runs waits."""
        self._preparing = None
        batch = self._batcher.prepare(self._clock())
        if batch is None:
            self._prepared = None
        elif self._prepared is None or self._prepared.batch is not batch:
            self._prepared = self._run_of(batch)

    def _pump(self) -> None:
        """Start every batch that may leave, then arrange for the next look."""
        self._start_all(self._clock())
        self._wait()

    def _start_all(self, now: float) -> None:
        while (batch := self._batcher.take(now)) is not None:
            self._start(batch, now)
            now = self._clock()

    def _wait(self) -> None:
        now = self._clock()
        for call, why in self._batcher.drops():
            call.fail(self._refusal(why))
        wakeup = self._batcher.next_wakeup()
        self._arrange(now, wakeup)
        if PROCESS_ACTIVITY.is_heard:
            self._report(now, wakeup)
        if self._batcher.can_prepare:
            self._prepare_soon()
        elif not len(self._batcher):
            self._prepared = None  # Its callers have gone: it would keep what they have sent.

    def _start(self, batch: Batch[Any], now: float) -> None:
        run = self._prepared
        if run is not None and run.batch is batch:
            self._prepared = None
        else:
            run = self._run_of(batch)
        self._steps.begin(run, batch, now)
        if self._traces is not None:
            self._traces.begin(run, batch, run.context)
        task = run.start(self.loop)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._on_run_done(done, run))
        self.measures.begin(len(batch.items), now - batch.arrivals[0])

    def _run_of(self, batch: Batch[Any]) -> Run | StreamRun:
        run: Run | StreamRun
        if self.is_stream:
            run = StreamRun(self._function, batch, self._label, on_free=self._on_free)
        else:
            run = Run(
                self._function,
                batch,
                self._label,
                isolate_failures=self._options.isolate_failures,
                on_free=self._on_free,
            )
        if self._replica is not None:
            run.context.run(LOCAL_REPLICA.set, self._replica)
        return run

    def _report(self, now: float, wakeup: float | None) -> None:
        options = self._options
        if options.batch_size_fn is None:  # Else a batch is not full at a number of calls.
            state = self._steps.state(
                now,
                size_max=options.max_batch_size,
                executors=options.max_concurrent_batches,
                wakeup=wakeup,
            )
            PROCESS_ACTIVITY.report(self, state)

    def _arrange(self, now: float, wakeup: float | None) -> None:
        if self._timer is not None and (wakeup is None or wakeup != self._timer_at):
            self._timer.cancel()
            self._timer = None
        if self._timer is not None or wakeup is None:
            return
        self._timer_at = wakeup
        if not self._is_coarse:
            self._timer = self.loop.call_at(wakeup, self._on_timer)
        else:  # Rounded up, or the timer would come too early and have to be set again.
            delay_s = math.ceil((wakeup - now) * 1000) / 1000
            self._timer = self.loop.call_later(max(0.0, delay_s), self._on_timer)

    def _on_soon(self) -> None:
        self._soon = None
        self._pump()
        self._end_drain()

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _on_free(self, run: Run | StreamRun) -> None:
        # A function that never waits keeps the loop to itself: what it answers has to go out
        # before the next batch runs, which is when its task is done.
        if run.task is not None:
            self._go_on(run, has_failed=run.has_failed)

    def _on_run_done(self, task: asyncio.Task[None], run: Run | StreamRun) -> None:
        self._tasks.discard(task)
        run.source.end()
        if self._steps.is_running(run):
            self._go_on(run, has_failed=run.has_failed or task.cancelled())
        self._end_drain()

    def _go_on(self, run: Run | StreamRun, *, has_failed: bool) -> None:
        """Start what follows ``run``, and postpone everything that can be done later."""
        now = self._clock()
        duration_s = self._steps.end(run, now)
        self.measures.end(duration_s, has_failed=has_failed)
        batch: Batch[Any] = run.batch
        if not has_failed:
            self._batcher.learn(batch.size, duration_s, batch.key)
        self._batcher.complete(batch, now)
        is_open = not self.loop.is_closed()
        if is_open:
            self._start_all(now)
        is_watched = self._traces is not None and self._traces.end(run, has_failed=has_failed)
        if PROCESS_DELAYS.is_on and (
            PROCESS_DELAYS.keeps_batch(now - batch.arrivals[0])
            or has_failed
            or is_watched
            or run.source.asks()
        ):
            keep_batch(self._label, run, now, duration_s, has_failed=has_failed)
        if not is_open:
            return
        if not has_failed:  # A failure teaches nothing about the time.
            self._steps.learn(len(batch.items), duration_s)
        self._wait()

    def _end_drain(self) -> None:
        if self._idle is not None and not self._tasks and not len(self._batcher):
            self._idle.set_result(None)
            self._idle = None

    def _refusal(self, why: Drop) -> PyserveError:
        if why is Drop.EXPIRED:
            return RequestTimeout(f"the deadline passed before a batch of {self._label} ran")
        if why is Drop.HOPELESS:
            return BackPressure(
                f"{self._label} could not finish before the deadline even if it ran alone; "
                f"allow more time, or retry when it has become faster"
            )
        error = BatchError(
            f"batch_size_fn of {self._label} made an item larger than max_batch_size="
            f"{self._options.max_batch_size}; send smaller items, or raise max_batch_size"
        )
        error.code = StatusCode.INVALID_ARGUMENT
        return error


def _waits(call: Call) -> bool:
    return not call.caller.done()


def _reads(call: StreamCall) -> bool:
    return call.is_live()


# Records a finished batch, to explain later where the time of its calls went.


def keep_batch(
    label: str, run: Run | StreamRun, now: float, duration_s: float, *, has_failed: bool
) -> None:
    """Keep a batch that has ended now, after a run of ``duration_s``.

    This makes the members' request objects, which are otherwise not needed, so it is for few
    batches.
    """
    batch: Batch[Any] = run.batch
    wall = wall_clock_from(now)
    members = [
        (call.source.request().request_id, wall(arrival))
        for call, arrival in islice(zip(batch.items, batch.arrivals, strict=True), MEMBERS_MAX)
        if call.source is not None
    ]
    PROCESS_DELAYS.add_batch(
        BatchDelay(
            function=label,
            reason=str(batch.reason),
            model_id=batch.key,
            size=len(batch.items),
            left_at=wall(now - duration_s),
            ended_at=wall(now),
            failed=has_failed,
            request_id=run.source.request_id(),
            members=tuple(members),
        )
    )


# Statistics of one queue's batches, in plain lists: a handful of additions for each batch.


class BatchMeasures:
    """The times and sizes of batches. For the queue's thread; others may read them.

    Attributes:
        waits: How long the oldest call of each batch waited.
        runs: How long the batches took.
        sizes: Calls of a batch.
        failed: Batches whose function raised.
    """

    __slots__ = ("failed", "runs", "sizes", "waits")

    def __init__(self) -> None:
        self.waits = Tally()
        self.runs = Tally()
        self.sizes = Tally(SIZE_BOUNDS)
        self.failed = 0

    def begin(self, calls: int, waited_s: float) -> None:
        """Count a batch that leaves."""
        self.sizes.add(calls)
        self.waits.add(waited_s)

    def end(self, duration_s: float, *, has_failed: bool) -> None:
        """Count one that has run."""
        self.runs.add(duration_s)
        self.failed += has_failed
