"""When files were written to, as Linux announces it: inotify. For use in one event loop."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from pathlib import Path

_LOGGER = logging.getLogger(__name__)
_IN_MODIFY = 0x2
_READ_BYTES = 64 << 10


class FileChanges:
    """Waits until one of some files has been written to.

    Where the kernel allows no more watches (``fs.inotify.max_user_instances`` and
    ``max_user_watches``), ``wait`` returns at once: whoever calls it between pauses polls then.

    Attributes:
        is_polling: the kernel has refused.
    """

    def __init__(self) -> None:
        self.is_polling = False
        self._changed = asyncio.Event()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            self._poll(ctypes.get_errno())
        else:
            asyncio.get_running_loop().add_reader(self._descriptor, self._on_changed)

    def add(self, path: Path) -> None:
        """Watch a file until it is removed; what it holds already counts as a change."""
        self._changed.set()
        if self.is_polling:
            return
        found = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY)
        if found < 0:
            self._poll(ctypes.get_errno())

    async def wait(self) -> None:
        """Return when a file has changed since the last call."""
        if not self.is_polling:
            await self._changed.wait()
            self._changed.clear()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_changed(self) -> None:
        os.read(self._descriptor, _READ_BYTES)  # Which files it were does not matter.
        self._changed.set()

    def _poll(self, error: int) -> None:
        self.is_polling = True
        self._changed.set()
        _LOGGER.info("output of replicas is polled: inotify says %s", os.strerror(error))
