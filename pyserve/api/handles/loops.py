"""The event loop for calls of code that runs none: scripts, and threads of handlers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyserve.loop_thread import LoopThread

if TYPE_CHECKING:
    import asyncio


class CallsLoop:
    """A loop in a daemon thread of its own, made on first use. Thread-safe."""

    def __init__(self, name: str = "pyserve-calls") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        Raises:
            RuntimeError: ``close`` was called.
        """
        return (self._thread or self._start()).loop

    def close(self) -> None:
        """Cancel what runs on the loop and end its thread. Idempotent."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _start(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise RuntimeError("the mesh of this handle has been shut down")
            if self._thread is None:
                self._thread = LoopThread(self._name, waits_for_threads=True)
            return self._thread
