"""Passes values from a thread to the event loop through a bounded queue."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any


class HandOver:
    """Values of one thread, over which the event loop iterates.

    When the queue is full, the thread waits. Use it on the loop that constructs it.

    Args:
        unread_max: The size of the queue.
    """

    def __init__(self, unread_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread_max = unread_max
        self._changed = threading.Condition()
        self._values: deque[Any] = deque()
        self._is_ended = self._is_stopped = False
        self._failure: BaseException | None = None
        self._news = asyncio.Event()
        self._is_told = False  # The loop is going to look at the queue.

    # --- the thread -------------------------------------------------------------------------

    def put(self, value: Any) -> bool:
        """Pass a value on; return whether the reader has stopped, and wants no more values."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            if not self._is_stopped:
                self._values.append(value)
                self._tell()
            return self._is_stopped

    def end(self, failure: BaseException | None = None) -> None:
        """End the iteration, with an error if there is one."""
        with self._changed:
            self._is_ended, self._failure = True, failure
            self._tell()

    def _has_room(self) -> bool:
        return self._is_stopped or len(self._values) < self._unread_max

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._news.set)
            except RuntimeError:  # The loop has ended, and the reader with it.
                self._is_stopped = True

    # --- the loop ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop reading; the thread notices when it passes its next value."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while True:
            with self._changed:
                if self._values:
                    self._changed.notify()
                    return self._values.popleft()
                if self._failure is not None:
                    raise self._failure
                if self._is_ended:
                    raise StopAsyncIteration
                self._is_told = False
                self._news.clear()
            await self._news.wait()
