"""Finds processes that the kernel killed for lack of memory; it reports only their number."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyserve.launch.capacity import own_cgroups

_OF_MACHINE = Path("/proc/vmstat")
# In kibibytes, except on macOS.
_USAGE_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


class KernelKills:
    """Decides whether a process that ended by SIGKILL was likely killed by the kernel.

    Args:
        count: returns how many processes it has killed so far.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._known = count()

    def forget(self) -> None:
        """Another process starts: earlier kills by the kernel are not attributed any more."""
        self._known = self._count()

    def has_killed(self) -> bool:
        """Say whether there has been one more kill than those already attributed."""
        is_one_more = self._count() > self._known
        self._known += is_one_more
        return is_one_more


def count_kernel_kills(of_machine: Path = _OF_MACHINE) -> int:
    """Return how many processes the kernel has killed in this one's cgroup, or on the machine."""
    for path in (*(group / "memory.events" for group in own_cgroups()), of_machine):
        # The cgroup at the top has no such file, nor has another system.
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, value = line.split()
                if name == "oom_kill":
                    return int(value)
    return 0


def reap(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Wait for a child; return its status as ``Popen`` has it, and the most bytes it had in memory.

    Nothing else may wait for the same child.
    """
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except ChildProcessError:  # Where SIGCHLD is ignored nothing is left of it.
        return process.wait(), 0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * _USAGE_UNIT_BYTES
