"""CPU time and memory of a tree of processes, from ``/proc``.

A mesh is several processes; what it costs is what all of them cost. A process that ends between
two readings keeps counting with its last one, and one that begins counts from zero.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.driver.status import MeshStatus

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Fields of /proc/<pid>/stat behind the name in parentheses (field 3 has index 0 here).
_PPID = 1
_UTIME = 11
_STIME = 12
_START_TIME = 19
_RSS_PAGES = 21


@dataclass(frozen=True)
class ProcessReading:
    """One process at one moment.

    Attributes:
        pid: Its id.
        parent: Its parent's id.
        start_ticks: When it began; tells a reused id from the process that had it before.
        cpu_ticks: User and system time so far, in clock ticks.
        rss_bytes: Resident memory.
    """

    pid: int
    parent: int
    start_ticks: int
    cpu_ticks: int
    rss_bytes: int


Table = Mapping[int, ProcessReading]


def parse_stat(text: str) -> ProcessReading:
    """Read the one line of ``/proc/<pid>/stat``."""
    head, _, tail = text.rpartition(")")  # The name may hold anything, parentheses too.
    fields = tail.split()
    return ProcessReading(
        pid=int(head.partition(" ")[0]),
        parent=int(fields[_PPID]),
        start_ticks=int(fields[_START_TIME]),
        cpu_ticks=int(fields[_UTIME]) + int(fields[_STIME]),
        rss_bytes=int(fields[_RSS_PAGES]) * _PAGE_BYTES,
    )


def read_table() -> Table:
    """Read every process of this machine that may be read."""
    table = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            try:
                reading = parse_stat((folder / "stat").read_text(encoding="utf-8"))
            except (FileNotFoundError, ProcessLookupError):  # It ended meanwhile.
                continue
            table[reading.pid] = reading
    return table


def tree_of(table: Table, root: int) -> list[ProcessReading]:
    """Return ``root`` and all of its descendants; empty when it does not run."""
    children: dict[int, list[int]] = {}
    for reading in table.values():
        children.setdefault(reading.parent, []).append(reading.pid)
    found = []
    pending = [root] if root in table else []
    while pending:
        pid = pending.pop()
        found.append(table[pid])
        pending += children.get(pid, [])
    return found


def mesh_pids(status: MeshStatus) -> list[int]:
    """Return the mesh's processes on this machine: replicas are not children of the others."""
    deployments = [
        deployment
        for application in status.applications.values()
        for deployment in application.deployments.values()
    ]
    replicas = [replica.pid for each in deployments for replica in each.replicas]
    return [status.controller_pid, *(each.pid for each in status.ingresses), *replicas]


class TreeMeter:
    """The CPU time that trees of processes have used, as they come and go.

    Args:
        roots: Ids of processes; each counts with its descendants, and once.
        read: Reads the processes of this machine.
    """

    def __init__(self, *roots: int, read: Callable[[], Table] = read_table) -> None:
        self._roots = roots
        self._read = read
        # By id and start: an id that is used again is another process.
        self._cpu_ticks: dict[tuple[int, int], int] = {}
        self.rss_bytes = 0
        self.processes = 0

    def cpu_s(self) -> float:
        """Read the tree and return the CPU time of all that were ever seen in it, in seconds.

        Also updates ``rss_bytes`` (resident memory now, shared pages counted in each process)
        and ``processes``.
        """
        table = self._read()
        found = {each.pid: each for root in self._roots for each in tree_of(table, root)}
        tree = list(found.values())
        for reading in tree:
            self._cpu_ticks[reading.pid, reading.start_ticks] = reading.cpu_ticks
        self.rss_bytes = sum(reading.rss_bytes for reading in tree)
        self.processes = len(tree)
        return sum(self._cpu_ticks.values()) / _TICKS_PER_S
