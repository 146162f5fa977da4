"""Makes expensive results once for all concurrent requests, with pauses in between.

On loopback everybody may ask as often as they like, including other users of the machine. A request
gets a result whose making began after it, so that it never sees outdated numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

# Of the time that making has taken: at most a quarter of all time goes into it. Arbitrary.
_PAUSE_FACTOR = 3.0


class RateLimited(Generic[Made]):
    """Makes results one after the other, while there are requests; for one loop.

    Args:
        make: Makes one.
    """

    def __init__(self, make: Callable[[], Awaitable[Made]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._may_begin_at = 0.0
        self._next: asyncio.Task[Made] | None = None

    async def get(self) -> Made:
        """Return one whose making begins after this call; raises what ``make`` raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._make_next())
            # Retrieves an exception that no caller is left to receive.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _make_next(self) -> Made:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._may_begin_at - clock())
            # Callers from now on get the next one.
            self._next = None
            begun = clock()
            try:
                return await self._make()
            finally:
                self._may_begin_at = clock() + _PAUSE_FACTOR * (clock() - begun)
