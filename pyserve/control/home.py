"""The home directory of a mesh: its lock, and the mesh token in a file.

One process hands the lock to another. Proof of the token makes a process a member of the mesh.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
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


TOKEN_BYTES = 32
# The least for tokens that people choose: shorter ones could be guessed.
TOKEN_BYTES_MIN = 16
_WHAT_ONE_IS = "one is hexadecimal digits, in the file that a controller has written"


def read_token(path: Path, variable: str = "") -> bytes:
    """Read a mesh token from a file that only its owner may read, or root and one group.

    Args:
        path: where it is.
        variable: the environment's, which names it; "": none does.

    Raises:
        MeshError: the file is missing, not private, or empty, or holds something else, or too
            little.
    """
    named = f"{path} ({variable})" if variable else str(path)
    try:
        with path.open() as file:
            found = os.fstat(file.fileno())
            token = bytes.fromhex(file.read().strip())
    except OSError as error:
        raise MeshError(
            f"the mesh token cannot be read from {named}: {error.strerror}; give the path of the "
            f"file with the token of that mesh, which this user may read"
        ) from error
    except ValueError:
        raise MeshError(f"{named} holds something else than a mesh token: {_WHAT_ONE_IS}") from None
    # Kubernetes mounts a Secret as root's, and readable for the group of the pod.
    others = 0o037 if found.st_uid == 0 else 0o077
    if stat.S_IMODE(found.st_mode) & others:
        raise MeshError(f"{named} holds a mesh token but others may read it; chmod 600 {path}")
    if not token:
        raise MeshError(f"{named} holds no mesh token: {_WHAT_ONE_IS}")
    if len(token) < TOKEN_BYTES_MIN:
        raise MeshError(
            f"{named} holds a mesh token of {len(token)} bytes, which can be guessed; give it "
            f"{TOKEN_BYTES_MIN} at least: openssl rand -hex {TOKEN_BYTES}"
        )
    return token
