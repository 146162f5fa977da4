"""The asyncio end of a batcher: callers' futures in, runs of the batched function out.

One future per item and one task per batch; never a task per item. A queue belongs to one
event loop and is used from its thread only.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Generic, TypeVar

from pyserve.batching.batcher import Batch, Batcher, BatchOptions
from pyserve.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Result = TypeVar("Result")
Entry = tuple[tuple[object, ...], "asyncio.Future[Result]"]  # (arguments of one call, answer)


class BatchQueue(Generic[Result]):
    """Runs ``function`` on batches of calls.

    Args:
        function: Takes one list for each argument of a call, all of the batch's length.
        label: What messages call it, e.g. ``Digits.Classify``.
        options: Limits of a batch.
        loop: The running loop.
    """

    def __init__(
        self,
        function: Callable[..., Awaitable[Sequence[Result | BaseException]]],
        *,
        label: str,
        options: BatchOptions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self._function = function
        self._label = label
        self._batcher: Batcher[Entry[Result]] = Batcher(options, _is_live)
        self._timer: asyncio.TimerHandle | None = None
        # Kept here, because uvloop's handle of a time that is now cannot tell its time.
        self._timer_at: float | None = None
        self._runs: set[asyncio.Task[None]] = set()  # The loop keeps weak references only.

    def submit(self, *arguments: object) -> asyncio.Future[Result]:
        """Queue one call. Cancelling the future takes it out, unless its batch runs already."""
        future: asyncio.Future[Result] = self.loop.create_future()
        if self._batcher.add((arguments, future), self.loop.time()):
            self._pump()
        return future

    def _pump(self) -> None:
        """Start every batch that may leave, then arrange for the next look."""
        while (batch := self._batcher.take(self.loop.time())) is not None:
            # A batch belongs to no single caller, so it runs in an empty context.
            run = self.loop.create_task(self._run(batch), context=contextvars.Context())
            self._runs.add(run)
            run.add_done_callback(self._on_run_done)
        wakeup = self._batcher.next_wakeup()
        if self._timer is not None and self._timer_at != wakeup:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and wakeup is not None:
            self._timer = self.loop.call_at(wakeup, self._on_timer)
            self._timer_at = wakeup

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _on_run_done(self, run: asyncio.Task[None]) -> None:
        self._runs.discard(run)
        self._batcher.complete()
        if not self.loop.is_closed():
            self._pump()

    async def _run(self, batch: Batch[Entry[Result]]) -> None:
        rows = (arguments for arguments, _ in batch.items)
        columns = [list(column) for column in zip(*rows, strict=True)]
        try:
            results = _checked(await self._function(*columns), len(batch.items), self._label)
        except asyncio.CancelledError:
            for _, future in batch.items:
                future.cancel()
            raise
        except Exception as error:  # Every caller of the batch gets it.
            for _, future in batch.items:
                _settle(future, error)
        else:
            for (_, future), result in zip(batch.items, results, strict=True):
                _settle(future, result)


def _is_live(entry: Entry[Result]) -> bool:
    return not entry[1].done()


def _settle(future: asyncio.Future[Result], result: Result | BaseException) -> None:
    if future.done():  # Its caller went away while the batch ran.
        return
    if not isinstance(result, BaseException):
        future.set_result(result)
    elif isinstance(result, StopIteration):
        # A future refuses StopIteration, which would end the awaiting coroutine silently.
        wrapped = BatchError("a batched method raised or returned StopIteration")
        wrapped.__cause__ = result
        future.set_exception(wrapped)
    else:
        future.set_exception(result)


def _checked(
    results: Sequence[Result | BaseException], size: int, label: str
) -> Sequence[Result | BaseException]:
    """Return ``results`` if its first axis has the batch's length.

    Raises:
        BatchError: It is no sequence, or its length is another one.
    """
    expected = f"return a list, tuple or array with one result for each of the {size} items"
    is_sequence = hasattr(results, "__getitem__") and not isinstance(results, str | bytes | dict)
    try:
        length = len(results) if is_sequence else None
    except TypeError:  # An array without axes has no length.
        length = None
    if length is None:
        raise BatchError(f"{label} returned {type(results).__name__}; {expected}, in their order")
    if length != size:
        raise BatchError(
            f"{label} returned {length} results for a batch of {size}; {expected}, in their order"
        )
    return results
