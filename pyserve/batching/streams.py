"""Batches of an async generator: each step yields one result for each caller.

Every caller reads its results as an async iterator. The generator goes on once every caller who
still reads has room for one more, so the slowest reader sets the pace, with some results of
slack.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from pyserve.batching.lanes import Batch
from pyserve.batching.runs import (
    BatchRequestSource,
    begin,
    checked,
    columns_of,
    context_of,
    fail_all,
)
from pyserve.observe.failures import as_answer
from pyserve.observe.separate import Separate
from pyserve.request import Source

# Results that a reader may be behind. Arbitrary; more only helps readers of uneven pace.
BUFFER_MAX = 16

_ENDS = (StopIteration, StopAsyncIteration)


class StreamCall:
    """One caller who reads one stream of results. Used from the thread of its loop only."""

    __slots__ = (
        "_buffer",
        "_end",
        "_loop",
        "_reader",
        "arguments",
        "has_left",
        "on_moved",
        "source",
    )

    def __init__(
        self,
        arguments: tuple[object, ...],
        source: Source | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.arguments = arguments
        self.source = source
        self.has_left = False
        # Set by the run: this caller took a result, or left.
        self.on_moved: Callable[[], None] | None = None
        self._loop = loop
        self._buffer: deque[object] = deque()  # len(buffer) <= BUFFER_MAX
        self._end: BaseException | None = None  # raised when the buffer is empty
        self._reader: asyncio.Future[None] | None = None

    @property
    def has_room(self) -> bool:
        """Whether one more result may be pushed."""
        return len(self._buffer) < BUFFER_MAX

    def is_live(self) -> bool:
        """Return whether results for this caller are still of use."""
        return not self.has_left and self._end is None

    def push(self, result: object) -> None:
        """Hand over one result: a value, or what ends the stream."""
        if not self.is_live():
            return
        if result in _ENDS if isinstance(result, type) else isinstance(result, _ENDS):
            self.end(StopAsyncIteration())
        elif isinstance(result, BaseException):
            self.end(as_answer(result))
        else:
            self._buffer.append(result)
            self._wake()

    def fail(self, error: BaseException) -> None:
        """End the stream with an exception, after what was pushed."""
        if self.is_live():
            self.end(error)

    def cancel(self) -> None:
        """End the stream as cancelled."""
        if self.is_live():
            self.end(asyncio.CancelledError())

    def end(self, error: BaseException) -> None:
        """End the stream; ``StopAsyncIteration`` ends it well."""
        self._end = error
        self._wake()

    def leave(self) -> None:
        """Record that nobody reads any more."""
        self.has_left = True
        self._buffer.clear()
        self._wake()
        self._moved()

    async def take(self) -> object:
        """Return the next result, or raise what ends the stream.

        As of any generator, an exception comes once; the stream is over after it.
        """
        while not self._buffer:
            if self.has_left:
                raise StopAsyncIteration
            if self._end is not None:
                end, self._end = self._end, StopAsyncIteration()
                raise end
            if self._reader is not None:
                raise RuntimeError("two tasks read one stream of a batch; one has to do it")
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        was_full = not self.has_room
        result = self._buffer.popleft()
        if was_full:
            self._moved()
        return result

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _moved(self) -> None:
        if self.on_moved is not None:
            self.on_moved()


class BatchStream(AsyncIterator[Any]):
    """The stream that a caller reads; closing or dropping it takes the caller out of the batch."""

    def __init__(self, call: StreamCall, loop: asyncio.AbstractEventLoop) -> None:
        self._call = call
        self._loop = loop

    async def __anext__(self) -> Any:
        try:
            return await self._call.take()
        except asyncio.CancelledError:
            self._call.leave()
            raise

    async def aclose(self) -> None:
        """Leave the batch; reading on ends at once."""
        self._call.leave()

    def __del__(self) -> None:
        if self._call.is_live():
            # The garbage collector may run in any thread, also while the loop is closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._call.leave)


class StreamRun:
    """Runs an async generator on the arguments of a batch and feeds its callers.

    Args:
        function: Takes one list for each argument, yields one list of results a step.
        batch: The calls.
        label: What messages call the function.
        on_free: Called with the run when the generator is closed, before the callers' streams end.
    """

    __slots__ = (
        "_columns",
        "_function",
        "_label",
        "_on_free",
        "_room",
        "batch",
        "context",
        "has_failed",
        "source",
        "task",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        batch: Batch[StreamCall],
        label: str,
        *,
        on_free: Callable[[StreamRun], None],
    ) -> None:
        self._function = function
        self._label = label
        self._on_free = on_free
        self._room: asyncio.Future[None] | None = None
        self.batch = batch
        self.source = BatchRequestSource(batch)
        self.context = context_of(self.source)
        self._columns = columns_of(batch.items)
        self.task: asyncio.Task[None] | None = None
        self.has_failed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Start the run's task, with the generator's first step."""
        self.task = begin(loop, self._main(), self.context)
        for call in self.batch.items:
            call.on_moved = self._on_moved
        return self.task

    def _on_moved(self) -> None:
        assert self.task is not None
        if self.task.done():
            return
        if not any(call.is_live() for call in self.batch.items):
            self._stop()
        elif self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _stop(self) -> None:
        assert self.task is not None
        if all(call.has_left for call in self.batch.items):
            self.source.cancel()
        self.task.cancel()

    async def _main(self) -> None:
        calls = self.batch.items
        try:
            await self._feed(calls)
        except asyncio.CancelledError:
            for call in calls:
                call.cancel()
            raise
        except Exception as error:
            self.has_failed = True
            self._on_free(self)
            own = Separate()
            for call in calls:
                call.fail(own(error))
        except BaseException as error:
            if not fail_all(calls, error, self._label):
                raise
        else:
            self._on_free(self)
            for call in calls:
                call.fail(StopAsyncIteration())

    async def _feed(self, calls: list[StreamCall]) -> None:
        generator = self._function(*self._columns)
        self._columns = []
        try:
            async for results in generator:
                rows = checked(results, len(calls), self._label)
                own = Separate()  # The same exception may stand for several items.
                for call, result in zip(calls, rows, strict=True):
                    call.push(own(result) if isinstance(result, BaseException) else result)
                if not any(call.is_live() for call in calls):
                    return
                await self._until_room(calls)
        finally:
            await generator.aclose()

    async def _until_room(self, calls: list[StreamCall]) -> None:
        while any(call.is_live() and not call.has_room for call in calls):
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None
