"""What a mesh may leave behind and must not: processes and socket files."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil

# Not of the package's own names: unknown ones are warned of.
SESSION_VARIABLE = "TEST_SESSION_OF_PYSERVE"


def processes_of(session: str) -> list[str]:
    """Describe every other process that was started, at any remove, by the session.

    A process counts by the variable that it inherited, so one whose parent is gone counts too.
    Zombies of this process do not: whoever started them may still ask for their exit code.
    """
    return sorted(_describe(process) for process in _inheritors(session))


def _inheritors(session: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(SESSION_VARIABLE) == session:
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue


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
