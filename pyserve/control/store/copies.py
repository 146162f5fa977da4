"""A copy of the state beside its file, to recover from when that file is damaged.

The file is not synced to the disk at each change; the copy is, as a whole, so that a power loss
leaves one of the two intact. The copy also shows that a mesh has had its state here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from pyserve.errors import MeshError

_LOGGER = logging.getLogger(__name__)
_NEW = ".new"


def copy_of(path: Path) -> Path:
    """Return where the copy of a state's file is."""
    return path.with_name(f"{path.name}.copy")


def advice(path: Path) -> str:
    """Return advice about a state that is damaged or gone."""
    copy = copy_of(path)
    if not copy.exists():
        return "move the file away and deploy again"
    # SQLite would apply the rest of the former log to the copy.
    return (
        f"to go on with what was kept last, `rm -f {path}-* && cp {copy} {path}` and start again; "
        f"to begin anew, move both files away and deploy again"
    )


def refuse_lost(path: Path) -> None:
    """Refuse an empty state where a mesh has had one.

    Args:
        path: of a state that is missing, or holds nothing.

    Raises:
        MeshError: there is a copy of it; the text says what to do.
    """
    if copy_of(path).exists():
        raise MeshError(
            f"the state of the mesh is missing or empty ({path}), and was not before; "
            f"{advice(path)}"
        )


class Copies:
    """Keeps the copy of a state's file.

    Args:
        path: the file.
        writes: returns how many changes have been written to it.
    """

    def __init__(self, path: Path, writes: Callable[[], int]) -> None:
        self._path = path
        self._writes = writes
        self._copied_writes = -1
        self._problem = ""

    async def keep(self, period_s: float) -> None:
        """Copy what has changed, from time to time.

        Args:
            period_s: seconds from one copy to the next.
        """
        while True:
            await asyncio.sleep(period_s)
            await asyncio.to_thread(self.copy)

    def copy(self) -> None:
        """Copy the state if it has been written since; a failure is logged, and keeps the former.

        It blocks for as long as the disk takes.
        """
        writes = self._writes()
        if writes in (0, self._copied_writes):
            return
        try:
            _copy(self._path)
        except (sqlite3.Error, OSError) as error:
            if str(error) != self._problem:
                _LOGGER.warning("the state of the mesh cannot be copied: %s", error)
            self._problem = str(error)
        else:
            self._copied_writes, self._problem = writes, ""


def _copy(path: Path) -> None:
    """Put a copy beside a database, in one step and forced to the disk."""
    new = path.with_name(path.name + _NEW)
    new.unlink(missing_ok=True)
    # By us, so that it is for this user only.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(new, flags, 0o600)
    try:
        # Never a file that was removed meanwhile.
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as source:
            source.execute("VACUUM INTO ?", (str(new),))
        os.fsync(file)
        new.replace(copy_of(path))
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        os.close(file)
        new.unlink(missing_ok=True)
