"""Counts how the calls of one replica end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CallCounters:
    """Counters of calls; any thread may use them.

    ``started == succeeded + failed + cancelled`` when no call runs.
    """

    def __init__(self) -> None:
        self.started = 0
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self._lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the call that runs inside, by how it leaves."""
        with self._lock:
            self.started += 1
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            with self._lock:
                self.cancelled += 1
            raise
        except BaseException:
            with self._lock:
                self.failed += 1
            raise
        else:
            with self._lock:
                self.succeeded += 1
