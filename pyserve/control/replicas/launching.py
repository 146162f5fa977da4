"""The controller's interface to launchers, which start replicas, and their events.

The controller decides, and a launcher carries out: it turns an order into a process, a pod or an
actor, and reports what happens to it. It need not know whether a replica is ready, because replicas
join the controller by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from pyserve.config import Resources
from pyserve.config.capabilities import Capabilities
from pyserve.config.options import DeploymentOptions
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.state.mesh import Replica
from pyserve.types import DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2


@dataclass(frozen=True, slots=True)
class Gang:
    """The replicas that are placed with this one, together or not at all.

    Each is started by an order of its own, and all of them at about the same time. When one has
    ended the controller ends the others, and starts another gang when nothing of it is left.

    Attributes:
        id: no other gang has it.
        rank: which of them the one is, from 0.
        size: how many there are.
        strategy: ``PACK`` or ``SPREAD``.
    """

    id: str
    rank: int
    size: int
    strategy: str


@dataclass(frozen=True, kw_only=True)
class ReplicaOrder:
    """One replica to start.

    Attributes:
        sys_path: where its interpreter looks for modules, as in the driver; may be empty.
        working_directory: where it runs; "" for the launcher's own.
        environment: changes to the launcher's environment.
        resources: what to reserve.
        requirements: packages that it needs besides those of the launcher's interpreter.
        options: all those of its deployment, for what only some launchers know.
        gang: that it belongs to; ``None``: it starts alone.
        version: equal for replicas that run the same.
    """

    replica_id: ReplicaId
    key: DeploymentKey
    sys_path: tuple[str, ...]
    working_directory: str
    environment: Mapping[str, str]
    resources: Resources
    requirements: tuple[str, ...] = ()
    options: DeploymentOptions | None = None
    gang: Gang | None = None
    version: str = ""

    def arguments(self, controller: str) -> list[str]:
        """Return the arguments with which ``python -m pyserve.replica`` becomes this replica.

        It reads the mesh token from the file that ``PYSERVE_TOKEN_FILE`` names, or from the
        descriptor of a further argument, ``--token-fd``.

        Args:
            controller: where it finds the controller, ``unix:path`` or ``host:port``.
        """
        return [
            *("--controller", controller),
            *("--replica-id", self.replica_id),
            *("--application", self.key.application),
            *("--deployment", self.key.deployment),
        ]


def order_of(replica: Replica, spec: mesh_pb2.DeploymentSpec) -> ReplicaOrder:
    """Return the order for a replica that runs ``spec``."""
    return ReplicaOrder(
        replica_id=replica.id,
        key=replica.key,
        sys_path=tuple(spec.code.sys_path),
        working_directory=replica.options.working_dir or spec.code.working_directory,
        environment=replica.options.env_vars,
        resources=replica.options.resources,
        requirements=tuple(replica.options.pip),
        options=replica.options,
        gang=_gang_of(replica),
        version=replica.version,
    )


def _gang_of(replica: Replica) -> Gang | None:
    gangs = replica.options.gang_scheduling_config
    if gangs is None or not replica.gang:
        return None
    size = gangs.gang_size
    return Gang(replica.gang, replica.slot % size, size, gangs.gang_placement_strategy)


@dataclass(frozen=True, slots=True)
class Ended:
    """A replica has ended: nothing of it is left where it was started.

    Attributes:
        summary: how, and why if that is known, as it follows "replica Echo#abcde": "ended with exit
            code 1; its last output: …", "was killed by SIGKILL", "was lost with its node n7".
    """

    replica_id: ReplicaId
    summary: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A replica that was started does not run yet, and may never.

    Attributes:
        why: as it follows "waits for": "a node with 4 CPUs"; "": it waits no more.
    """

    replica_id: ReplicaId
    why: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A replica has got a machine, of which its engine knows more than the replica can.

    Attributes:
        zone: failure domain of the machine; one that the replica itself names takes precedence.
    """

    replica_id: ReplicaId
    zone: str


Event = Ended | Waiting | Placed


class Events:
    """The events of replicas, in order, kept until they are taken by ``async for``.

    For each replica the last event of each kind is kept, so at most three per replica. All methods
    belong to one loop. If two tasks take events, each gets some.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[type[Event], ReplicaId], Event] = {}
        self._news = asyncio.Event()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def put(self, event: Event) -> None:
        """Keep an event, in place of one of its kind that was not taken yet."""
        key = type(event), event.replica_id
        self._kept.pop(key, None)
        self._kept[key] = event
        self._news.set()

    def close(self) -> None:
        """End the iteration after the events that are queued now."""
        self._is_closed = True
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._kept:
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._kept.pop(next(iter(self._kept)))


@runtime_checkable
class Launcher(Protocol):
    """Starts replicas, ends them, and reports their events.

    Its replicas end with it, however it ends, unless it is a ``LastingLauncher``. All methods are
    called in one loop, and must not block it.
    """

    @property
    def name(self) -> str:
        """Its name for people."""

    @property
    def capabilities(self) -> Capabilities:
        """The options of deployments that it supports; others are refused at a deploy."""

    async def open(self) -> None:
        """Connect with what starts the replicas; called once, before all else.

        Raises:
            MeshError: that is not there, or will not have us; the text says what to do.
        """

    async def start(self, order: ReplicaOrder) -> int:
        """Begin a replica; return once the order was accepted.

        Returns:
            The id of its process, 0 where that means nothing on this machine.

        Raises:
            OSError: it cannot be started; the message says why. No ``Ended`` follows.
        """

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """Have a replica end, with all that it has started; unknown ids are ignored.

        Args:
            replica_id: whose end follows as ``Ended``. It may be stopped again, with less grace.
            grace_s: how long it may finish what it has, as after SIGTERM; then, and with 0 at
                once, it is killed.
        """

    def room(self) -> Room:
        """Return how many replicas may start at a time, as things are now."""

    def watch(self) -> AsyncIterator[Event]:
        """Return the events of replicas, as they happen; they end after ``close``.

        Without a watch events are kept, also after a watch has raised.
        """

    async def close(self) -> None:
        """Kill what is left and wait until it has ended. Idempotent."""


@runtime_checkable
class LastingLauncher(Launcher, Protocol):
    """A launcher whose replicas outlive it, and are found again by the next one."""

    def memo(self, replica_id: ReplicaId) -> str:
        """Return what the next launcher needs to find a replica that this one has started."""

    def adopt(self, order: ReplicaOrder, memo: str) -> int | None:
        """Watch a replica that another launcher has started, as if it were this one's.

        Args:
            order: what it was started for.
            memo: as ``memo`` gave it; "": the one before may have been killed in between.

        Returns:
            As ``start``; ``None`` if there is no such replica any more.
        """

    def end_strays(self) -> None:
        """Drain the replicas of this mesh that this launcher has neither started nor adopted."""

    def let_go(self) -> None:
        """Leave all replicas as they are; nothing is started or ended from here on."""


@runtime_checkable
class CountsStrays(Protocol):
    """A lasting launcher that can count the replicas that a lost state would leave behind."""

    def count_strays(self) -> int:
        """Return how many replicas ``LastingLauncher.end_strays`` would end."""
