"""An asyncio loop in a thread of its own, which starts with the first call.

Sockets of references are served there, so that a stalled loop of user code keeps nobody waiting.
"""

from __future__ import annotations

import _thread
import asyncio
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from pyserve.errors import ReferenceLost, RuntimeForked
from pyserve.loop_thread import run_until_stopped

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 10.0  # arbitrary; the loop does nothing that takes long


class PrivateLoop:
    """Runs callbacks and coroutines in its own thread; any thread may hand them over."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.RLock()
        self._ended = threading.Event()
        self._ident = 0
        self._closed = False
        self._pid = os.getpid()

    @property
    def has_started(self) -> bool:
        """Whether there is a thread."""
        return self._loop is not None

    @property
    def is_usable(self) -> bool:
        """Neither closed nor in a forked process, where the thread does not exist."""
        return self._pid == os.getpid() and not self._closed

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function`` in the loop's thread soon; nothing happens once it is closed.

        Finalizers come here, from any thread and in the middle of anything, so this takes no
        lock that somebody else could hold.
        """
        if not self.is_usable:
            return
        try:
            self._running().call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop was closed meanwhile, or the interpreter is shutting down and starts no
            # threads any more. Either way the end of the process frees everything.
            if not sys.is_finalizing() and self.is_usable:
                raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start ``coroutine`` in the loop; cancelling the future cancels it.

        Raises:
            RuntimeForked: This process is a fork of the one that made the loop.
            ReferenceLost: The loop is closed.
        """
        self.check()
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def check(self) -> None:
        """Refuse to go on where nothing would ever happen.

        Raises:
            RuntimeForked: This process is a fork of the one that made the loop.
            ReferenceLost: The loop is closed.
        """
        if self._pid != os.getpid():
            raise RuntimeForked(
                f"references belong to process {self._pid}, of which this is a fork; start it "
                "with multiprocessing's 'spawn' method"
            )
        if self._closed:
            raise ReferenceLost("this process has let go of its mesh, and of all values with it")

    def close(self, last: Callable[[], object]) -> None:
        """Call ``last`` in the thread, if there is one, and end it. Idempotent."""
        loop, usable = self._loop, self.is_usable
        self._closed = True
        if loop is None or not usable:
            return

        def stop() -> None:
            try:
                last()
            finally:
                loop.stop()

        loop.call_soon_threadsafe(stop)
        if _thread.get_ident() != self._ident and not self._ended.wait(_CLOSE_TIMEOUT_S):
            _LOGGER.warning("the thread of references did not end within %g s", _CLOSE_TIMEOUT_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        with self._starting:
            loop = asyncio.SelectorEventLoop()
            if self._loop is not None:  # A finalizer has come here in between.
                loop.close()
                return self._loop
            self._loop = loop
            # Not `threading.Thread`, whose start takes locks that the interrupted code may hold.
            self._ident = _thread.start_new_thread(self._run, (loop,))
            return loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        threading.current_thread().name = "pyserve-references"
        try:
            run_until_stopped(loop, waits_for_threads=True)
        finally:
            self._ended.set()
