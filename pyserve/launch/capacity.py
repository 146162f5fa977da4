"""How many replicas this machine can start and hold, and which of them it killed for memory."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyserve.config import Resources
from pyserve.control.reconcile.start_limits import Room
from pyserve.launch.ledger import Grant, Ledger

# A start uses a processor for a second or two, and waits for files or weights in between; more
# starts at a time only slow each other down. Arbitrary.
_STARTS_PER_PROCESSOR = 4
# Below it Linux evicts pages of running programs, and everything becomes slow. Arbitrary.
_MEMORY_LEFT_PERCENT_MIN = 5
# This process has a handful for each replica. A quarter is for clients, whose connections do not
# count here, or a crowd of them would keep a dead replica from being replaced; and another quarter
# (at most 1 024) is kept from clients (``front/src/connection_limit.rs``), for a start too.
# Arbitrary.
_DESCRIPTORS_LEFT_PERCENT_MIN = 50
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Stock:
    """How much of a resource is left, and its total: bytes of memory, or descriptors."""

    left: int
    whole: int

    def is_below(self, percent: int) -> bool:
        """Return whether less than that amount is left."""
        return self.left * 100 < self.whole * percent


@dataclass(frozen=True, slots=True)
class Stocks:
    """The resources that replicas use up; ``None``: unknown."""

    memory: Stock | None = None
    descriptors: Stock | None = None


def room(processors: int, stocks: Stocks, running: int) -> Room:
    """Return how many replicas may start at a time.

    Args:
        processors: that this process may use.
        stocks: what is left for replicas.
        running: replicas that exist. If there are none, one may start in any case.
    """
    if shortage := _shortage(stocks):
        return Room(starts_max=0 if running else 1, why=shortage, is_short=True)
    starts_max = _STARTS_PER_PROCESSOR * processors
    return Room(
        starts_max=starts_max,
        why=f"{starts_max} start at a time, {_STARTS_PER_PROCESSOR} for each processor",
    )


def _shortage(stocks: Stocks) -> str:
    memory, descriptors = stocks.memory, stocks.descriptors
    if memory is not None and memory.is_below(_MEMORY_LEFT_PERCENT_MIN):
        return (
            f"{memory.left / 2**20:.0f} MiB of {memory.whole / 2**20:.0f} MiB of memory are left, "
            f"and replicas start again when {_MEMORY_LEFT_PERCENT_MIN} % are; lower num_replicas, "
            f"or use a larger machine"
        )
    if descriptors is not None and descriptors.is_below(_DESCRIPTORS_LEFT_PERCENT_MIN):
        return (
            f"{descriptors.left} of the {descriptors.whole} descriptors of the mesh's process are "
            f"left, and replicas start again when "
            f"{_DESCRIPTORS_LEFT_PERCENT_MIN} % are; lower num_replicas, or start the mesh with "
            f"a higher limit (ulimit -n)"
        )
    return ""


def read_stocks() -> Stocks:
    """Return what is left for replicas now."""
    return Stocks(_memory(), _descriptors())


def usable_processors() -> int:
    """Count the processors that this process may use, whole ones, as its cgroup limits them."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for group in own_cgroups():
        with contextlib.suppress(OSError, ValueError):  # "max" stands for no limit.
            quota, period = (group / "cpu.max").read_text().split()
            count = min(count, math.ceil(int(quota) / int(period)))
    return max(count, 1)


def _descriptors() -> Stock | None:
    try:
        # Since Linux 6.2 the folder's size is the count.
        folder = Path("/proc/self/fd")
        used = folder.stat().st_size or sum(1 for _ in folder.iterdir())
    except OSError:  # Another system.
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    return Stock(max(limit - used, 0), limit)


def _memory() -> Stock | None:
    """Return the memory where the least of the whole is left: in a cgroup, or of the machine."""
    found = [memory for memory in (_of_machine(), *map(memory_of, own_cgroups())) if memory]
    return min(found, key=lambda each: each.left / each.whole, default=None)


def _of_machine() -> Stock | None:
    try:
        values = _values(Path("/proc/meminfo").read_text().replace(":", " "))
        return Stock(values["MemAvailable"] * 1024, values["MemTotal"] * 1024)
    except (OSError, ValueError, KeyError):  # Another system.
        return None


def memory_of(group: Path) -> Stock | None:
    """Return the memory that is left in the folder of a cgroup; ``None``: it has no limit."""
    try:
        whole = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        # Pages of files count as used although they can be reclaimed, as can those of weights that
        # replicas have mapped; for the machine ``MemAvailable`` counts both kinds as available.
        kinds = _values((group / "memory.stat").read_text())
        used -= kinds["inactive_file"] + kinds["active_file"]
        return Stock(max(whole - used, 0), max(whole, 1))
    except (OSError, ValueError, KeyError):  # No limit, or none that is known.
        return None


def _values(text: str) -> dict[str, int]:
    """Read lines of a name and a number."""
    return {name: int(value) for name, value, *_ in map(str.split, text.splitlines())}


def own_cgroups() -> Iterator[Path]:
    """Yield the cgroup (version 2) of this process and those above it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, name = line.split(":", 2)
        if number == "0":
            group = _CGROUPS / name.strip("/")
            yield from (each for each in (group, *group.parents) if each.is_relative_to(_CGROUPS))


# Finds processes that the kernel killed for lack of memory; it reports only their number.

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


# The machine's resources for replicas, and how a process is kept to its share.

# Variables that numeric libraries read to size their thread pools.
_THREAD_COUNT_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def machine_ledger(environment: Mapping[str, str]) -> Ledger:
    """Return the ledger of this machine, with nothing reserved.

    Processors are those that this process may run on; graphics devices those of
    ``CUDA_VISIBLE_DEVICES``, else the device files of the NVIDIA driver.
    """
    if hasattr(os, "sched_getaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
    else:  # macOS cannot pin, and counts only.
        cpus = list(range(os.cpu_count() or 1))
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        found = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
        gpus = sorted((name for name in found if name.isdigit()), key=int)
    else:
        gpus = [name.strip() for name in visible.split(",") if name.strip()]
    return Ledger(cpus=cpus, gpus=gpus)


def pin(pid: int, grant: Grant) -> None:
    """Keep a process that has just been started on its own processors, where that is possible.

    Threads that it starts later inherit it; a process that is gone already is left alone.
    """
    if grant.cpus and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(pid, grant.cpus)
        except ProcessLookupError:
            return


def thread_counts(resources: Resources) -> dict[str, str]:
    """Give each replica the threads it reserved, unless the environment says otherwise."""
    count = str(max(1, int(resources.num_cpus or 1)))
    return dict.fromkeys(_THREAD_COUNT_VARIABLES, count)
