"""An event loop in a daemon thread of its own, for work that no other loop must hold up."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Coroutine
    from typing import Any

T = TypeVar("T")


class LoopThread:
    """Runs a loop until ``close``, for every other thread of the process.

    A process that forgets to close it can end all the same. A fork has neither the thread nor its
    work; ``close`` does nothing there.

    Args:
        name: Of the thread.
        waits_for_threads: ``close`` waits for what ``asyncio.to_thread`` still runs. User code may
            take as long as it likes there.

    Attributes:
        loop: That of the thread.
    """

    def __init__(self, name: str, *, waits_for_threads: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=run_until_stopped, args=(self.loop, waits_for_threads), name=name, daemon=True
        )
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread is there."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in that thread, so that waiting for it would take for ever."""
        return self._thread is threading.current_thread()

    def run(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start ``work`` in the loop; cancelling the future cancels it.

        Raises:
            RuntimeError: The loop is closed.
        """
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Cancel what runs, and end loop and thread; in the thread itself soon. Idempotent."""
        if self.is_running:
            self.loop.call_soon_threadsafe(self.loop.stop)
            if not self.is_current:
                self._thread.join()


def run_until_stopped(loop: asyncio.AbstractEventLoop, waits_for_threads: bool) -> None:
    """Run a loop in the calling thread, then cancel what is left there and close it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        if waits_for_threads:
            loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
