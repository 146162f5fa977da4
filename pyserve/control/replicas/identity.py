"""Names and numbers of replicas, and how they describe themselves when they join.

Replicas that the controller starts fill the slots 0 ... n-1 of their version, and run on one node;
replicas started from outside get the numbers after them as they come. Pure but for chance.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field

from pyserve.control.state.engines import dated
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Place, ReplicaIndex, take
from pyserve.types import DeploymentKey, ReplicaId, ReplicaRank, ServiceName
from pyserve.wire.v1 import mesh_pb2

# Letters and digits that are not confused, for names that people read aloud.
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 5


def new_id(key: DeploymentKey, taken: Container[ReplicaId]) -> ReplicaId:
    """Return a name that no other replica has."""
    while True:
        letters = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
        name = ReplicaId(f"{key.deployment}#{letters}")
        if name not in taken:
            return name


def new_replica(
    key: DeploymentKey,
    version: Version,
    slot: int,
    now: float,
    others: ReplicaIndex,
    name: str = "",
) -> Replica:
    """Return a replica that has not reported yet; without a name it gets one."""
    replica_id = ReplicaId(name) if name else new_id(key, others)
    return Replica(
        id=replica_id,
        gang=_gang(key, version, slot, others) or replica_id if _has_gang(version, slot) else "",
        key=key,
        version=version.id,
        options=version.options,
        slot=slot,
        created_at=now,
        calls=version.calls,
    )


def _has_gang(version: Version, slot: int) -> bool:
    return version.options.gang_size > 1 and slot != EXTERNAL_SLOT


def _gang(key: DeploymentKey, version: Version, slot: int, others: ReplicaIndex) -> str:
    """Return the name of a slot's gang; "": none of its members has been started yet."""
    first = slot - slot % version.options.gang_size
    found = (
        each.gang
        for each in others.of(key).values()
        if each.version == version.id and each.phase is not Phase.STOPPING and each.slot == first
    )
    return next(found, "")


def gang_message(replica: Replica, others: ReplicaIndex) -> mesh_pb2.Gang | None:
    """Return the description of its gang that a replica gets; ``None``: it has no gang."""
    if not replica.gang:
        return None
    mine = [each for each in others.of(replica.key).values() if each.gang == replica.gang]
    return mesh_pb2.Gang(
        id=replica.gang,
        rank=replica.slot % replica.options.gang_size,
        replicas=[each.id for each in sorted(mine, key=lambda item: item.slot)],
    )


def place_of(hello: mesh_pb2.Hello, known: Place) -> Place:
    """Return where a joining replica runs, by its own report or else its launcher's."""
    return Place(node=hello.node, zone=hello.zone or known.zone)


def ready_place(replica: Replica, ready: mesh_pb2.Ready) -> Place:
    """Return the place of a replica that listens now."""
    return dataclasses.replace(
        replica.place,
        address=ready.endpoints.address,
        unix_path=ready.endpoints.unix_path,
        direct_http=ready.endpoints.direct_http,
        direct_grpc=ready.endpoints.direct_grpc,
        proves_itself=ready.endpoints.proves_itself,
    )


def learn_services(desired: Desired, ready: mesh_pb2.Ready, *, unix_now: float) -> None:
    """Take what a replica offers as that of its deployment.

    Args:
        desired: Its deployment.
        ready: From the replica.
        unix_now: Unix time in seconds; models that do not say when they were made are from then.
    """
    desired.services = tuple(map(ServiceName, ready.services))
    desired.file_descriptors = tuple(ready.file_descriptors)
    desired.http, desired.http_prefixes = ready.http, tuple(ready.http_prefixes)
    desired.idempotent_methods = tuple(ready.idempotent_methods)
    desired.engine_models = tuple(
        model.SerializeToString() for model in dated(ready.engine_models, desired, unix_now)
    )


def drop_unused(state: MeshState, specs: dict[str, mesh_pb2.DeploymentSpec]) -> None:
    """Drop the code of versions that nothing runs."""
    used = state.replicas.versions()
    for desired in state.deployments.values():
        used |= {item.id for item in (desired.target, desired.fallback) if item is not None}
    for unused in specs.keys() - used:
        del specs[unused]


@dataclass(frozen=True, slots=True)
class _Entry:
    """The relevant state of one replica."""

    of: tuple[DeploymentKey, str]
    is_external: bool
    node: str
    rank: ReplicaRank | None


class _Taken:
    """Numbers with counts of their users, and the smallest unused one."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        # All from the first one to the second one are taken.
        self._run = (0, 0)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, number: int, by: int) -> None:
        """One more has the number, or one less."""
        self._counts[number] += by
        if not self._counts[number]:
            del self._counts[number]
            first, end = self._run
            if first <= number < end:
                self._run = first, number

    def free(self, first: int) -> int:
        """Return the smallest unused one from ``first`` on."""
        known, end = self._run
        end = _free(end if known == first else first, self._counts)
        self._run = first, end
        return end


@dataclass(slots=True)
class _Numbers:
    """Those of one version."""

    externals: int = 0
    ranks: _Taken = field(default_factory=_Taken)
    node_ranks: _Taken = field(default_factory=_Taken)
    near: dict[str, dict[ReplicaId, ReplicaRank]] = field(default_factory=dict)


class Ranks:
    """The numbers that the replicas of a mesh have.

    Args:
        state: of the mesh; what has not changed in it is not looked at again.
    """

    def __init__(self, state: MeshState) -> None:
        self._state = state
        self._changed = state.replicas.follow()
        self._entries: dict[ReplicaId, _Entry] = {}
        self._numbers: dict[tuple[DeploymentKey, str], _Numbers] = {}

    def give(self, replica: Replica) -> ReplicaRank:
        """Return the number of a replica that has said where it runs; the same one every time."""
        if replica.rank is None:
            if replica.slot == EXTERNAL_SLOT:
                replica.rank = self._external_rank(replica)
            else:
                replica.rank = ReplicaRank(replica.slot, 0, replica.slot)
        return replica.rank

    def world_size(self, replica: Replica) -> int:
        """Return how many replicas its version should have, including those that others started."""
        return self._own(replica) + self._of(replica).externals

    def _external_rank(self, replica: Replica) -> ReplicaRank:
        own, numbers = self._own(replica), self._of(replica)
        near = list(numbers.near.get(replica.place.node, {}).values())
        is_own_node = any(rank.node_rank == 0 for rank in near) and own > 0
        return ReplicaRank(
            rank=numbers.ranks.free(own),
            node_rank=near[0].node_rank if near else numbers.node_ranks.free(min(own, 1)),
            local_rank=_free(own if is_own_node else 0, {rank.local_rank for rank in near}),
        )

    def _own(self, replica: Replica) -> int:
        version = self._state.version_of(replica.key, replica.version)
        return replica.options.initial_num_replicas if version is None else version.num_replicas

    def _of(self, replica: Replica) -> _Numbers:
        """Return the numbers of a replica's version as they are now."""
        for replica_id in take(self._changed):
            self._look(replica_id)
        return self._numbers.get((replica.key, replica.version)) or _Numbers()

    def _look(self, replica_id: ReplicaId) -> None:
        replica = self._state.replicas.get(replica_id)
        now = None if replica is None else _entry(replica)
        before = self._entries.get(replica_id)
        if now == before:
            return
        if before is not None:
            self._count(replica_id, before, -1)
            del self._entries[replica_id]
        if now is not None:
            self._entries[replica_id] = now
            self._count(replica_id, now, 1)

    def _count(self, replica_id: ReplicaId, entry: _Entry, by: int) -> None:
        numbers = self._numbers.setdefault(entry.of, _Numbers())
        numbers.externals += by * entry.is_external
        if (rank := entry.rank) is not None:
            numbers.ranks.count(rank.rank, by)
            numbers.node_ranks.count(rank.node_rank, by)
            near = numbers.near.setdefault(entry.node, {})
            if by > 0:
                near[replica_id] = rank
            elif len(near) > 1:
                del near[replica_id]
            else:
                del numbers.near[entry.node]
        if not (numbers.externals or numbers.ranks):
            del self._numbers[entry.of]


def _entry(replica: Replica) -> _Entry:
    return _Entry(
        (replica.key, replica.version),
        replica.slot == EXTERNAL_SLOT,
        replica.place.node,
        replica.rank,
    )


def _free(first: int, taken: Container[int]) -> int:
    while first in taken:
        first += 1
    return first
