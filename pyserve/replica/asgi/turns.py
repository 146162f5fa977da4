"""Takes turns: a task with much to read lets others of its event loop run in between."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A queue of tasks that wait for a turn of the event loop; each turn is for one of them.

    So a hundred tasks that have much to read delay all others by no more than one does.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_turning = False

    async def next(self) -> None:
        """Wait until it is the caller's turn again, after the others in the queue."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turn, loop)
        await turn

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # Whoever was cancelled has left the line.
                turn.set_result(None)
                break
        self._is_turning = bool(self._waiting)
        if self._is_turning:
            loop.call_soon(self._turn, loop)
