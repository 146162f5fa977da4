"""Takes turns: who has much to read lets the others of its event loop go between."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A line of those that wait for a turn of the event loop; each turn is for one of them.

    So a hundred that have much to read together delay everybody else by as much as one does.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_turning = False

    async def next(self) -> None:
        """Wait until it is the caller's turn again; others have had theirs by then."""
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
