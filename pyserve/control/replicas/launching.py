"""What the controller needs from whatever starts replica processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pyserve.config import Resources
from pyserve.control.reconcile.rationing import Room
from pyserve.control.state.mesh import Replica
from pyserve.types import DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2

# Called once, in the loop's thread, when the process has ended, with how: "ended with exit
# code 1", "was killed by SIGKILL".
OnExit = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ReplicaOrder:
    """One process to start.

    Attributes:
        sys_path: where its interpreter looks for modules, as in the driver; may be empty.
        working_directory: where it runs; "" for the launcher's own.
        environment: changes to the launcher's environment.
        resources: what to reserve.
        requirements: packages that it needs besides those of the launcher's interpreter.
    """

    replica_id: ReplicaId
    key: DeploymentKey
    sys_path: tuple[str, ...]
    working_directory: str
    environment: Mapping[str, str]
    resources: Resources
    requirements: tuple[str, ...] = ()


def order_of(replica: Replica, spec: mesh_pb2.DeploymentSpec) -> ReplicaOrder:
    """Return what a launcher has to know of a replica that runs ``spec``."""
    return ReplicaOrder(
        replica_id=replica.id,
        key=replica.key,
        sys_path=tuple(spec.code.sys_path),
        working_directory=replica.options.working_dir or spec.code.working_directory,
        environment=replica.options.env_vars,
        resources=replica.options.resources,
        requirements=tuple(replica.options.pip),
    )


class Launcher(Protocol):
    """Starts replicas, watches their end, and kills them. All methods belong to one loop."""

    async def start(self, order: ReplicaOrder, on_exit: OnExit) -> int:
        """Start a process and return its id once it exists.

        Raises:
            OSError: it cannot be started; the message says why. ``on_exit`` is not called then.
        """

    def room(self) -> Room:
        """Return how many replicas may start at a time, as things are now."""

    def kill(self, replica_id: ReplicaId) -> None:
        """End the process and all that it started, at once; unknown ids are ignored."""

    async def close(self) -> None:
        """Kill what is left and wait until it has ended. Idempotent."""


@runtime_checkable
class LastingLauncher(Launcher, Protocol):
    """A launcher whose replicas outlive it, and are found again by the next one."""

    def memo(self, replica_id: ReplicaId) -> str:
        """Return what the next launcher needs to find a replica that this one has started."""

    def adopt(self, order: ReplicaOrder, memo: str, on_exit: OnExit) -> int:
        """Watch a replica that another launcher has started, as if it were this one's.

        Args:
            order: what it was started for.
            memo: as ``memo`` gave it; "": the one before may have been killed in between.
            on_exit: as for ``start``.

        Returns:
            Its process id, 0 if there is no such process any more.
        """

    def end_strays(self) -> None:
        """End the replicas of this mesh that neither ``start`` nor ``adopt`` has told of."""
