"""The event loop for calls of code that runs none: scripts, and threads of handlers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading


class CallsLoop:
    """A loop in a daemon thread of its own, made on first use. Thread-safe."""

    def __init__(self, name: str = "pyserve-calls") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        Raises:
            RuntimeError: ``close`` was called.
        """
        loop = self._loop
        return self._start() if loop is None else loop

    def close(self) -> None:
        """Cancel what runs on the loop and end its thread. Idempotent."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            thread = self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise RuntimeError("the mesh of this handle has been shut down")
            if self._loop is None:
                ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = (
                    concurrent.futures.Future()
                )
                # A daemon, so that a process that forgets to shut down can end.
                self._thread = threading.Thread(
                    target=self._run, args=(ready,), name=self._name, daemon=True
                )
                self._thread.start()
                self._loop = ready.result()  # Making a loop takes no time that could be bounded.
            return self._loop

    @staticmethod
    def _run(ready: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            asyncio.set_event_loop(loop)
            ready.set_result(loop)
            loop.run_forever()
