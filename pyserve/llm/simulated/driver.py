"""Drives the simulated scheduler on an event loop: one timer for all sequences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from pyserve import cache
from pyserve.errors import PyserveError
from pyserve.llm.results import BlocksRemoved, BlocksStored, CacheCleared, CacheEvent
from pyserve.llm.simulated.scheduler import Running, Scheduler

# Batches that a reader of cache events may leave unread; beyond that it gets the whole cache again.
_UNREAD_MAX = 256


class Driver:
    """Lets a scheduler step when its time has come.

    Args:
        scheduler: What it drives.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: dict[Running, asyncio.Future[None]] = {}
        self._readers: dict[asyncio.Queue[list[CacheEvent]], bool] = {}  # Has it lost any?

    def begin(self, sequence: Running) -> None:
        """Let a sequence run from now on."""
        self.scheduler.add(sequence, self._loop.time())
        self._set_timer()

    def grows(self, sequence: Running) -> asyncio.Future[None]:
        """Return what is done when a sequence gets its next token."""
        waiter = self._waiters[sequence] = self._loop.create_future()
        return waiter

    def end(self, sequence: Running) -> None:
        """Cancel a sequence, if it has not ended."""
        self._waiters.pop(sequence, None)
        self.scheduler.cancel(sequence)
        self._publish()

    def close(self) -> None:
        """Make no more steps."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        due = self.scheduler.next_at()
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due, self._step)

    def _step(self) -> None:
        self._timer = None
        for sequence in self.scheduler.advance(self._loop.time()):
            waiter = self._waiters.pop(sequence, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        self._publish()
        self._set_timer()

    # --- the prefix cache -------------------------------------------------------------------

    def _publish(self) -> None:
        events, self.scheduler.pool.events = self.scheduler.pool.events, []
        if not events:
            return
        for event in events:
            _tell_routers(event)
        for reader in self._readers:
            if reader.full():
                self._readers[reader] = True
            elif not self._readers[reader]:
                reader.put_nowait(events)

    async def cache_events(self) -> AsyncGenerator[list[CacheEvent], None]:
        """Yield batches of events, all that is cached first."""
        reader: asyncio.Queue[list[CacheEvent]] = asyncio.Queue(_UNREAD_MAX)
        self._readers[reader] = False
        try:
            yield self.scheduler.pool.snapshot()
            while True:
                if self._readers[reader] and reader.empty():
                    self._readers[reader] = False
                    yield [CacheCleared(), *self.scheduler.pool.snapshot()]
                yield await reader.get()
        finally:
            del self._readers[reader]


def _tell_routers(event: CacheEvent) -> None:
    match event:
        case BlocksStored(hashes, parent) if parent:
            cache.stored(hashes, parent=parent)
        case BlocksStored(hashes):
            cache.stored(hashes)
        case BlocksRemoved(hashes):
            cache.removed(hashes)
        case CacheCleared():
            cache.cleared()


class SimulatedFailure(PyserveError):
    """The failure that a request has asked for."""
