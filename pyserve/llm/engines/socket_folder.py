"""A private folder for a socket. Later processes remove those of processes that were killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "pyserve-llama-"


class SocketFolder:
    """A folder in the system's temporary folder, locked until ``close``.

    Folders that killed processes have left behind are removed when a new one is made.
    """

    def __init__(self) -> None:
        _remove_left()
        while True:
            self._path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self._path.is_dir():
                break
            os.close(self._lock)  # Another process has removed it, as one that was left behind.

    @property
    def socket(self) -> str:
        """The path for the socket."""
        return str(self._path / "server.sock")

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def _remove_left() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # Somebody else's, or gone.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # It is in use.
            continue
        finally:
            os.close(descriptor)
