"""What costs all processes of a node something is made for all who ask together, and with pauses.

On loopback everybody may ask, other users of the machine too, and as often as they like. Whoever
asks gets what was made after that, so that nobody sees numbers of before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

# Of the time that making has taken: at most a quarter of all time goes into it. Arbitrary.
_PAUSE_FACTOR = 3.0


class RateLimited(Generic[Made]):
    """Makes one after the other, as long as somebody asks; for one loop.

    Args:
        make: Makes one.
    """

    def __init__(self, make: Callable[[], Awaitable[Made]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._may_begin_at = 0.0
        self._next: asyncio.Task[Made] | None = None

    async def get(self) -> Made:
        """Return one whose making has begun after this call; what ``make`` raises comes through."""
        if self._next is None:
            self._next = asyncio.create_task(self._make_next())
            # Whoever asked may have gone.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _make_next(self) -> Made:
        clock = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._may_begin_at - clock())
            # Whoever comes from now on asks for the one after it.
            self._next = None
            begun = clock()
            try:
                return await self._make()
            finally:
                self._may_begin_at = clock() + _PAUSE_FACTOR * (clock() - begun)
