"""What happens to the soak's mesh once each, besides replicas that are killed.

Each fault returns what it did; ``TimeoutError`` if the mesh has not got over it in time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyserve
from pyserve.driver.status import ReplicaStatus

# Of the soak's replicas: three checks that fail take fifteen seconds.
HEALTH_CHECK_PERIOD_S = 2.0
HEALTH_CHECK_TIMEOUT_S = 3.0
# The controller asks each eight seconds; the rest is for a busy machine.
_REPLACED_TIMEOUT_S = 60.0
# The mesh looks once a second; the rest is for a busy machine.
_RESTORED_TIMEOUT_S = 30.0
_LOOK_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Target:
    """The mesh that something happens to.

    Attributes:
        home: Its ``PYSERVE_HOME``.
        replicas: Those that run.
        on_kill: To be called while calls may meet a replica that fails.
    """

    home: Path
    replicas: Sequence[ReplicaStatus]
    on_kill: Callable[[], None]


Fault = Callable[[Target], Awaitable[str]]


async def wedge_replica(target: Target) -> str:
    """Let a replica stand still as a whole, as native code does that keeps the interpreter."""
    victim = target.replicas[0]
    os.kill(victim.pid, signal.SIGSTOP)
    async with asyncio.timeout(_REPLACED_TIMEOUT_S):
        while Path(f"/proc/{victim.pid}").exists():  # noqa: ASYNC240  # no disk
            # Nobody but the mesh ends it; until then routers try it now and then.
            target.on_kill()
            await asyncio.sleep(_LOOK_INTERVAL_S)
    return f"{victim.replica_id} stood still, and was replaced"


async def remove_run_directory(target: Target) -> str:
    """Do what cleaners of temporary folders do; replicas are killed after it."""
    (run_directory,) = target.home.glob("mesh-*")
    shutil.rmtree(run_directory)
    async with asyncio.timeout(_RESTORED_TIMEOUT_S):
        while not (run_directory / "controller.sock").exists():  # noqa: ASYNC110  # no event
            await asyncio.sleep(_LOOK_INTERVAL_S)
        while not (await asyncio.to_thread(pyserve.status)).notices:  # noqa: ASYNC110  # as above
            await asyncio.sleep(_LOOK_INTERVAL_S)
    return f"{run_directory.name} was removed, and made anew"


FAULTS: tuple[Fault, ...] = (remove_run_directory, wedge_replica)
