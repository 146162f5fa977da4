"""The same rules on a real event loop: the shipping queue, and ``sleep`` as the step.

The loop's selector waits to the microsecond; ``epoll`` would round every wait up to whole
milliseconds, which is half of the shorter step.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from benchmarks.batching_rules import Outcome, Step, summarize
from pyserve.batching import BatchOptions
from pyserve.batching.decorator import Batched

Submit = Callable[[int], Awaitable[Any]]
# After the last arrival, answers may take this long; those that do not come count as late.
_GRACE_S = 1.0


class Live:
    """One rule with a step that sleeps, ready to take calls."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.sizes: list[int] = []

    async def run(self, items: list[int]) -> list[int]:
        """Take as long as the step does."""
        self.sizes.append(len(items))
        await asyncio.sleep(self.step.duration_s(len(items)))
        return items

    def shipping(self, options: BatchOptions) -> Submit:
        """Return what submits one call to the shipping queue."""
        bound: Any = Batched[int](Live.run, options).bind(self)
        submit: Submit = bound.__pyserve_submit__
        return submit

    def frozen(self, window_s: float, size_max: int) -> Submit:
        """Return what submits one call under the seeds' rule."""
        return _Frozen(self.run, window_s, size_max).submit


class _Frozen:
    """Batches that are closed by their timer and then queue for one executor."""

    def __init__(self, run: Callable[..., Awaitable[Any]], window_s: float, size_max: int) -> None:
        self._run = run
        self._window_s = window_s
        self._size_max = size_max
        self._open: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._permit = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, _: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._open.append(future)
        if len(self._open) == self._size_max:
            self._close()
        elif self._timer is None:
            self._timer = loop.call_later(self._window_s, self._close)
        return future

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        members, self._open = self._open, []
        task = asyncio.get_running_loop().create_task(self._execute(members))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, members: list[asyncio.Future[None]]) -> None:
        async with self._permit:
            await self._run(members)
        for future in members:
            if not future.done():
                future.set_result(None)


def measure(
    starts: dict[str, Callable[[Live], Submit]], arrivals: Sequence[float], step: Step
) -> dict[str, Outcome]:
    """Send the arrivals to every rule at once, each with an executor of its own."""
    with asyncio.Runner(loop_factory=_precise_loop) as runner:
        return runner.run(_measure(starts, arrivals, step))


def throughput(step: Step, size: int, seconds: float) -> float:
    """Return the answers/s of full batches of ``size``: always twice as many calls wait."""

    async def main() -> float:
        submit = Live(step).shipping(BatchOptions(max_batch_size=size))
        loop = asyncio.get_running_loop()
        begin, answered = loop.time(), 0

        async def call_on() -> None:
            nonlocal answered
            while loop.time() < begin + seconds:
                await submit(0)
                answered += 1

        await asyncio.gather(*(call_on() for _ in range(2 * size)))
        return answered / (loop.time() - begin)

    with asyncio.Runner(loop_factory=_precise_loop) as runner:
        answered_per_s: float = runner.run(main())
    return answered_per_s


async def _measure(
    starts: dict[str, Callable[[Live], Submit]], arrivals: Sequence[float], step: Step
) -> dict[str, Outcome]:
    loop = asyncio.get_running_loop()
    lives = {name: Live(step) for name in starts}
    submits = [starts[name](live) for name, live in lives.items()]
    ends: list[list[float]] = [[float("inf")] * len(arrivals) for _ in submits]
    begin = loop.time() + 0.01
    began: list[float] = []

    def note(row: list[float], index: int) -> Callable[[Any], None]:
        def noted(future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                row[index] = loop.time()

        return noted

    pending: set[Any] = set()
    for index, arrival in enumerate(arrivals):
        if (wait_s := begin + arrival - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        began.append(loop.time())
        for submit, row in zip(submits, ends, strict=True):
            future: Any = submit(index)
            pending.add(future)
            future.add_done_callback(note(row, index))
            future.add_done_callback(pending.discard)
    if pending:
        await asyncio.wait(set(pending), timeout=_GRACE_S)
    over = loop.time()
    for future in tuple(pending):
        future.cancel()
    return {
        name: summarize(began, [min(end, over) for end in row], live.sizes or [0])
        for (name, live), row in zip(lives.items(), ends, strict=True)
    }


def best_of(rounds: Sequence[Outcome]) -> Outcome:
    """Return the round that other programs of the machine disturbed least."""
    keeping_up = [each for each in rounds if each.answers_all]
    if 2 * len(keeping_up) >= len(rounds):
        return min(keeping_up, key=lambda each: each.mean_s)
    return max(rounds, key=lambda each: each.answered_per_s)


def _precise_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())
