"""A process that owns a lasting launcher with a replica, for the tests that kill it."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from pyserve.config import Resources
from pyserve.launch import LastingLocalLauncher, ReplicaOrder
from pyserve.launch.ledger import Ledger
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from tests.support.waiting import eventually


def make(run_dir: Path, lines: list[str], spares: int = 0) -> LastingLocalLauncher:
    """Return a launcher whose replicas run the tests' subject."""
    return LastingLocalLauncher(
        controller=_nowhere,
        token=b"token",
        run_dir=run_dir,
        on_line=lines.append,
        module="tests.unit.launch.subject",
        ledger=Ledger(cpus=[min(os.sched_getaffinity(0))], gpus=["3", "5"]),
        spares=spares,
    )


def order(run_dir: Path, behaviour: str, name: str = "Echo#abcde") -> ReplicaOrder:
    """Return what one replica is started for."""
    return ReplicaOrder(
        replica_id=ReplicaId(name),
        key=DeploymentKey(ApplicationName("shop"), DeploymentName("Echo")),
        sys_path=(),
        working_directory="",
        environment={"SUBJECT": behaviour, "SUBJECT_PLACE": str(run_dir / "place")},
        resources=Resources(num_cpus=1, num_gpus=1),
    )


async def _nowhere() -> str:
    return "unix:/nowhere"


async def main() -> None:
    """Start one, wait until its first line has been read, print its memo, and die.

    With a third argument it takes one of so many spares, and has all of them again when it dies;
    with ``stopped`` as a fourth one it dies before the spare has read what it was told.
    """
    run_dir, behaviour, spares = Path(sys.argv[1]), sys.argv[2], int((*sys.argv, "0")[3])
    is_stopped = "stopped" in sys.argv
    lines: list[str] = []
    launcher = make(run_dir, lines, spares)
    await eventually(lambda: len(launcher.spare_pids()) == spares)
    wanted = order(run_dir, behaviour)
    for pid in launcher.spare_pids() if is_stopped else ():
        os.kill(pid, signal.SIGSTOP)
    await launcher.start(wanted)
    if not is_stopped:
        await eventually(lambda: lines)
        await eventually(lambda: len(launcher.spare_pids()) == spares)
    print(json.dumps([launcher.memo(wanted.replica_id), lines]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main())
