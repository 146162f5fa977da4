"""An event loop on which ``drive`` awaits an ``async def admit``, in virtual time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable
from typing import Any


class _Pausing:
    """A selector that stops its loop where only time can bring that forward.

    Threads and sockets take no virtual time: it waits for them.

    Attributes:
        now_s: The loop's time.
        wakes_s: When the loop has something to do by itself, of one that was stopped; ``None``:
            never.
        jobs: Functions that run in threads.
        may_stop: Whether it stops the loop, or lets the time pass instead.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.now_s = 0.0
        self.wakes_s: float | None = None
        self.jobs = 0
        self.may_stop = True
        self.loop: PausingLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready."""
        if timeout is not None and timeout <= 0:
            return self._selector.select(0)
        # The loop has a socket of its own, to be woken by.
        is_outside = self.jobs > 0 or len(self._selector.get_map()) > 1
        waits = is_outside or (timeout is None and not self.may_stop)
        ready = self._selector.select(timeout if waits else 0)
        if ready:
            return ready
        if self.may_stop:
            self.wakes_s = None if timeout is None else self.now_s + timeout
            self.loop.stop()
        elif timeout is not None:
            self.now_s += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


class PausingLoop(asyncio.SelectorEventLoop):
    """An event loop that turns when it is told to, at a time that it is told."""

    def __init__(self) -> None:
        self._pausing = _Pausing()
        self._pausing.loop = self
        super().__init__(self._pausing)  # type: ignore[arg-type]  # it stands for one

    def time(self) -> float:
        """See ``AbstractEventLoop``."""
        return self._pausing.now_s

    @property
    def wakes_s(self) -> float | None:
        """When its next timer is due; ``None``: it has none."""
        return self._pausing.wakes_s

    def turn(self, now_s: float) -> None:
        """Do all that can be done at a time, which never goes back."""
        self._pausing.now_s = max(self._pausing.now_s, now_s)
        self.run_forever()

    def run_to_the_end(self, awaited: Awaitable[Any]) -> Any:
        """Return what was awaited; what it waits for takes no time of others."""
        self._pausing.may_stop = False
        try:
            return self.run_until_complete(_await(awaited))
        finally:
            self._pausing.may_stop = True

    def run_in_executor(self, *arguments: Any) -> Any:  # type: ignore[override]  # as it was called
        """See ``AbstractEventLoop``."""
        job = super().run_in_executor(*arguments)
        self._pausing.jobs += 1
        job.add_done_callback(self._end_job)
        return job

    def _end_job(self, _: object) -> None:
        self._pausing.jobs -= 1


async def _await(awaited: Awaitable[Any]) -> Any:
    return await awaited
