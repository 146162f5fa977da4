"""The machine's resources for replicas, and how a process is kept to its share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyserve.config import Resources
from pyserve.launch.ledger import Grant, Ledger

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
