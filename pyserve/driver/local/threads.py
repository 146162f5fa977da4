"""Threads of ``def`` methods, which know when the code of one call has really ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any


class CallThreads:
    """A bounded pool.

    Args:
        threads_max: How many run at once.
        name: What names of threads begin with.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)

    def of_call(self) -> ThreadsOfCall:
        """Return the pool as one call sees it."""
        return ThreadsOfCall(self._pool)

    def close(self) -> None:
        """Let threads end; those that still run end with their work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class ThreadsOfCall(Executor):
    """Remembers the last step that a call has given to the pool: they run one by one."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._last: Future[Any] | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``function`` on a thread of the pool."""
        self._last = self._pool.submit(function, *args, **kwargs)
        return self._last

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when no code of the call runs any more, at once if none does."""
        if self._last is None:
            callback()
        else:
            self._last.add_done_callback(lambda _: callback())
