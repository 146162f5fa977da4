"""A process that owns a launcher with two replicas, for the test that kills it."""

import asyncio
import sys
from pathlib import Path

from pyserve.config import Resources
from pyserve.launch import LocalLauncher, ReplicaOrder
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from tests.support.launching import next_event


async def nowhere() -> str:
    return "unix:/nowhere"


async def main() -> None:
    launcher = LocalLauncher(
        controller=nowhere,
        token=b"token",
        run_dir=Path(sys.argv[1]),
        on_line=lambda line: None,
        module="tests.unit.launch.subject",
    )
    for number in range(2):
        order = ReplicaOrder(
            replica_id=ReplicaId(f"Echo#{number}"),
            key=DeploymentKey(ApplicationName("shop"), DeploymentName("Echo")),
            sys_path=(),
            working_directory="",
            environment={"SUBJECT": "wait"},
            resources=Resources(),
        )
        await launcher.start(order)
    print(*(process.pid for process in launcher._processes.values()), flush=True)
    await next_event(launcher)


asyncio.run(main())
