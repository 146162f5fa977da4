"""What a process is in its mesh: the replica's context, and the way to other deployments.

This is the one place that holds what the process is attached to; everything else gets it passed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyserve.config import CallSettings, read_call_settings
from pyserve.errors import MeshNotFound, NotInReplica, RuntimeForked
from pyserve.request import LOCAL_REPLICA
from pyserve.types import FIRST_RANK, ReplicaRank

if TYPE_CHECKING:
    import asyncio

    import grpc.aio

    from pyserve.api.handles.calls import Caller
    from pyserve.references import References
    from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId


class Mesh(Protocol):
    """The mesh that this process belongs to, as handles see it; for any thread."""

    @property
    def references(self) -> References:
        """The values that this process holds, and its way to those of others."""

    def caller(self, key: DeploymentKey) -> Caller:
        """Return the caller for one deployment; the same one every time.

        Raises:
            MeshUnavailable: The controller does not answer, or ``close`` was called.
        """

    def prepare(self) -> None:
        """Start to prepare for the first call, without waiting for it."""

    def calls_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for calls from threads without a running loop; made on first use."""

    def open_channel(self, key: DeploymentKey) -> grpc.aio.Channel:
        """Return a channel whose calls are routed to the replicas of one deployment."""

    def close(self) -> None:
        """Let go of the mesh. Idempotent."""


@dataclass(frozen=True, slots=True)
class GangContext:
    """The replicas with which one starts and ends, as ``gang_scheduling_config`` says.

    Attributes:
        gang_id: No other gang has it.
        rank: The number of this replica among them.
        world_size: How many they are.
        member_replica_ids: Their ids, by rank.
    """

    gang_id: str
    rank: int
    world_size: int
    member_replica_ids: Sequence[ReplicaId]


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """Who the running replica is.

    Attributes:
        app_name: The application.
        deployment: The deployment's name.
        replica_id: Unique in the mesh, for as long as it runs.
        servable_object: The instance of the user's class; ``None`` in its constructor.
        rank: Its number among the replicas; see ``ReplicaRank``.
        world_size: How many replicas there shall be; a later context may have another number.
        deployment_actors: Names of the deployment's helpers, see ``get_deployment_actor``.
        gang_context: Its gang; ``None``: it starts alone.
    """

    app_name: ApplicationName
    deployment: DeploymentName
    replica_id: ReplicaId
    servable_object: object
    rank: ReplicaRank = FIRST_RANK
    world_size: int = 1
    deployment_actors: tuple[str, ...] = ()
    gang_context: GangContext | None = None

    @property
    def replica_tag(self) -> ReplicaId:
        """The replica's id, under the name that Ray Serve uses."""
        return self.replica_id


@dataclass(slots=True)
class _Process:
    mesh: Mesh | None = None
    local: Mesh | None = None
    replica: ReplicaContext | None = None
    pid: int = 0  # Of the process that attached; a fork has another one.
    calls: CallSettings = field(default_factory=CallSettings)


_process = _Process()


def get_replica_context() -> ReplicaContext:
    """Return the context of the replica that this code runs in.

    Raises:
        NotInReplica: This process is no replica.
    """
    found = replica_context()
    if found is None:
        raise NotInReplica(
            "get_replica_context() works in a replica only; call it in the constructor or a "
            "method of a deployment"
        )
    return found


def replica_context() -> ReplicaContext | None:
    """Return the context of the replica that this code runs in, ``None`` outside of one."""
    local: ReplicaContext | None = LOCAL_REPLICA.get()
    return local or _process.replica


def enter_replica(context: ReplicaContext | None) -> None:
    """Make this process a replica, or with ``None`` no longer one."""
    _process.replica = context


def enter_local_replica(context: ReplicaContext) -> None:
    """Make the current context, not the process, that of a replica."""
    LOCAL_REPLICA.set(context)


@contextmanager
def as_local_replica(context: ReplicaContext) -> Iterator[None]:
    """Make the block's context that of a replica."""
    token = LOCAL_REPLICA.set(context)
    try:
        yield
    finally:
        LOCAL_REPLICA.reset(token)


def attach_local(mesh: Mesh | None) -> None:
    """Make ``mesh`` the one that handles ask first; it knows the process's own as well."""
    _process.local = mesh
    _note_attached(mesh)


def local_attachment() -> Mesh | None:
    """Return the mesh of local testing mode, if this process has one."""
    return _process.local


def attach(mesh: Mesh | None) -> None:
    """Make ``mesh`` the one that the handles of this process use."""
    _process.mesh = mesh
    _note_attached(mesh)


def _note_attached(mesh: Mesh | None) -> None:
    _process.pid = os.getpid()
    if mesh is not None:
        _process.calls = read_call_settings()


def call_settings() -> CallSettings:
    """Return what the environment said of calls when this process was attached to its mesh."""
    return _process.calls


def attachment() -> Mesh | None:
    """Return the mesh of this process, if it has one.

    Raises:
        RuntimeForked: This process is a fork of the one that was attached.
    """
    return _unless_forked(_process.mesh)


def expect_calls() -> None:
    """Start to fetch the mesh's view when a replica gets a handle.

    The first call then need not wait for the view. That matters because it may be made on the loop
    that answers the replica's own calls.
    """
    if _process.replica is not None and _process.mesh is not None:
        _process.mesh.prepare()


def attached() -> Mesh:
    """Return the mesh of this process.

    Raises:
        MeshNotFound: It has none.
        RuntimeForked: This process is a fork of the one that was attached.
    """
    mesh = _unless_forked(_process.local or _process.mesh)
    if mesh is None:
        raise MeshNotFound(
            "this process is in no mesh; call pyserve.run(app), or pyserve.start() to attach"
        )
    return mesh


def _unless_forked(mesh: Mesh | None) -> Mesh | None:
    if mesh is not None and _process.pid != os.getpid():
        raise RuntimeForked(
            f"this process is a fork of process {_process.pid}, where the connections of the "
            f"mesh live; start it with multiprocessing's 'spawn' method, or use the mesh in the "
            f"parent only"
        )
    return mesh
