"""What a mesh may leave behind and must not: processes and socket files."""

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.waiting import wait_until

# Not of the package's own names: unknown ones are warned of.
SESSION_VARIABLE = "TEST_SESSION_OF_PYSERVE"
# A drain without calls in flight takes less than a second; the rest is for a busy machine.
_END_TIMEOUT_S = 30.0


@contextlib.contextmanager
def environment_of_a_mesh() -> Iterator[dict[str, str]]:
    """Yield the environment of a mesh with a home of its own; nothing of it may be left."""
    # Short, because the path of a Unix socket has room for 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="pyserve-mesh-", dir="/tmp"))
    session = uuid.uuid4().hex
    try:
        yield {
            **os.environ,
            "PYSERVE_HOME": str(home),
            # Commands without an address get a free port: another process may have 8000.
            "PYSERVE_INGRESS_PORT": "0",
            SESSION_VARIABLE: session,
        }
        wait_until(
            lambda: not processes_of(session), _END_TIMEOUT_S, "the mesh has left no process"
        )
        assert [] == sockets_below(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def processes_of(session: str) -> list[str]:
    """Describe every other process that was started, at any remove, by the session.

    A process counts by the variable that it inherited, so one whose parent is gone counts too.
    Zombies of this process do not: their parent may still ask for their exit code.
    """
    return sorted(_describe(process) for process in _inheritors(session))


def _inheritors(session: str) -> Iterator[psutil.Process]:
    for pid in psutil.pids():
        # It may have ended meanwhile, or be another user's.
        with contextlib.suppress(psutil.Error, OSError):
            if pid != os.getpid() and _has_inherited(pid, session):
                yield psutil.Process(pid)


def _has_inherited(pid: int, session: str) -> bool:
    # All processes are looked at until those of a mesh have gone, so often: psutil takes three
    # times as long.
    if sys.platform == "linux":
        variable = f"{SESSION_VARIABLE}={session}".encode()
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return psutil.Process(pid).environ().get(SESSION_VARIABLE) == session


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())}"
    except psutil.Error as error:
        return f"{process.pid}: {error}"


def sockets_below(folder: Path) -> list[str]:
    """List the socket files below ``folder``."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # It has just gone.
            if stat.S_ISSOCK(path.lstat().st_mode):
                found.append(str(path))
    return sorted(found)
