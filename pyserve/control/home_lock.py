"""The lock of a home directory, and the way one process hands it to another."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from pyserve.errors import MeshError
from pyserve.folders import PrivateFolder

LOCK = "mesh.lock"


def take_lock(home: PrivateFolder) -> int | None:
    """Take the lock of a home; return its open file, None if another process has it.

    Raises:
        MeshError: The home cannot be written to.
    """
    try:
        descriptor = home.open(LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise MeshError(
            f"{LOCK} cannot be written in {home.path}: {error.strerror}; set PYSERVE_HOME to a "
            "directory that you may write to"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if home.is_file(LOCK, descriptor):
        return descriptor
    # It was removed meanwhile, so the holder of the present file is unknown.
    os.close(descriptor)
    return None


def note_holder(lock: int, text: str) -> None:
    """Write the holder into the lock's file."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, text.encode(), 0)


def holder_of(home: Path) -> int:
    """Return the process id in the lock's file; OSError or ValueError if there is none."""
    match json.loads((home / LOCK).read_text()):
        case {"pid": int(pid)} if pid > 0:
            return pid
    raise ValueError("no process id")


def is_held(home: Path) -> bool:
    """Say whether a controller has ``home``, including one that is starting or ending."""
    try:
        with (home / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # There is none.
        return False
    return False


# A home directory that one process hands to another.


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A home directory handed from one process to another, which no other can take in between.

    Attributes:
        lock: descriptor of the locked file in the home directory.
        mark: descriptor of the locked mark of the run directory.
        run_dir: where sockets and the token are.
    """

    lock: int
    mark: int
    run_dir: Path

    def argument(self) -> str:
        """Return it as a command-line argument."""
        return f"{self.lock},{self.mark},{self.run_dir}"

    @classmethod
    def from_argument(cls, text: str) -> Self:
        """Read the output of ``argument``."""
        lock, mark, run_dir = text.split(",", 2)
        return cls(lock=int(lock), mark=int(mark), run_dir=Path(run_dir))

    def copy(self) -> Lease:
        """Return a copy with descriptors of its own."""
        return replace(self, lock=os.dup(self.lock), mark=os.dup(self.mark))
