"""A process's use of the machine, as the kernel counts it."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
from pathlib import Path

from pyserve.observe.metrics.families import Scrape
from pyserve.version import version

_PROC = Path("/proc/self")
_PROC_STAT_START = 21  # starttime, field 22 of proc(5), counted from 0
_RESIDENT_FIELD = 1  # of statm


def add_process(scrape: Scrape, role: str) -> None:
    """Add time, memory, descriptors and threads of this process."""
    pid = str(os.getpid())
    used = resource.getrusage(resource.RUSAGE_SELF)
    scrape.add("pyserve_info", 1, role=role, pid=pid, version=version())
    scrape.add(
        "pyserve_process_cpu_seconds_total", used.ru_utime + used.ru_stime, role=role, pid=pid
    )
    scrape.add("pyserve_process_threads", _threads(), role=role, pid=pid)
    for number, each in enumerate(gc.get_stats()):
        labels = {"role": role, "pid": pid, "generation": str(number)}
        scrape.add("pyserve_process_gc_collections_total", each["collections"], **labels)
    scrape.add("pyserve_process_resident_memory_bytes", _resident_bytes(used), role=role, pid=pid)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        scrape.add("pyserve_process_max_fds", soft, role=role, pid=pid)
    if sys.platform == "linux":
        scrape.add("pyserve_process_open_fds", _count(_PROC / "fd"), role=role, pid=pid)
        scrape.add("pyserve_process_start_time_seconds", _started_at(), role=role, pid=pid)


def _resident_bytes(used: resource.struct_rusage) -> int:
    if sys.platform == "linux":
        pages = int((_PROC / "statm").read_text().split()[_RESIDENT_FIELD])
        return pages * resource.getpagesize()
    # Elsewhere only the maximum so far is available: in bytes on macOS.
    return used.ru_maxrss


def _threads() -> int:
    """Count the threads; on Linux including those of the native side."""
    if sys.platform == "linux":
        return _count(_PROC / "task")
    return threading.active_count()


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _started_at() -> float:
    """Return when the process was started, Unix time in seconds."""
    # The name in field 2 may have blanks and parentheses.
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_PROC_STAT_START - 2])
    boot = next(
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
    )
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
