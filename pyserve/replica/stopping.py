"""A replica's request to stop: its grace, and cancelling steps of the start."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

Value = TypeVar("Value")


class StoppedEarly(Exception):
    """The replica was asked to end before it served."""


class Stop:
    """Whether a replica is to end. Used on its loop.

    Attributes:
        grace_s: How long it may take; None: as long as its deployment says.
    """

    def __init__(self) -> None:
        self.grace_s: float | None = None
        self._asked = asyncio.Event()
        self._asked_at = 0.0

    def ask(self, grace_s: float | None = None) -> None:
        """Ask it to end; of several graces the shortest counts."""
        if grace_s is not None and (self.grace_s is None or grace_s < self.grace_s):
            self.grace_s = grace_s
        self._asked_at = self._asked_at or asyncio.get_running_loop().time()
        self._asked.set()

    def await_another(self) -> None:
        """Let ``wait`` wait for a second request, which cuts the grace short."""
        self._asked.clear()

    async def wait(self) -> None:
        """Wait until it is asked to end."""
        await self._asked.wait()

    def ends_at(self, default_s: float) -> float:
        """Return the loop's time at which its grace is over; ``default_s`` is its deployment's."""
        begun = self._asked_at or asyncio.get_running_loop().time()
        return begun + (default_s if self.grace_s is None else self.grace_s)

    async def unless(self, step: Coroutine[object, object, Value], default_s: float = 0.0) -> Value:
        """Await ``step``; when the replica is to end, cancel it and wait until it has ended.

        Args:
            step: What belongs to the start.
            default_s: The grace of the deployment; a step that does not end within is left.

        Raises:
            StoppedEarly: The replica is to end.
        """
        task = asyncio.ensure_future(step)
        asked = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            return task.result()
        task.cancel()
        left_s = self.ends_at(default_s) - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=max(left_s, 0.0))
        if task.done() and not task.cancelled():
            task.exception()  # Otherwise asyncio logs an unretrieved exception.
        raise StoppedEarly
