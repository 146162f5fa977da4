"""Keeps in a store the records that a new controller needs, and removes them when they are stale.

``records_of`` is pure. ``Recorder`` writes the changes since its last write at the end of each
step, before any of the step's actions begins, so a replica is recorded before its process exists.
If the store fails, that is logged once; the mesh goes on, and the write is retried a second later.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyserve.control.reconcile.rollout import Reconfiguring
from pyserve.control.state.applications import Applications
from pyserve.control.state.history import Condition
from pyserve.control.state.mesh import Desired, MeshState, Replica, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Follower
from pyserve.control.store import Changes, Records, Store, changes_between
from pyserve.control.store.records import (
    ApplicationRecord,
    DeploymentRecord,
    Key,
    MeshFacts,
    Record,
    ReplicaRecord,
    SlotRecord,
    SpecRecord,
    Table,
    VersionRecord,
)
from pyserve.errors import MeshError
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
_RETRY_INTERVAL_S = 1.0  # arbitrary; a disk that is full stays so for a while
Specs = Mapping[str, mesh_pb2.DeploymentSpec]


@dataclass(frozen=True, slots=True)
class Memory:
    """The parts of a controller that outlive it.

    Attributes:
        specs: what replicas run, by the ids of versions.
        memos: how to find the processes of replicas.
    """

    state: MeshState
    applications: Applications
    reconfiguring: Reconfiguring
    specs: dict[str, mesh_pb2.DeploymentSpec]
    memos: Mapping[ReplicaId, str]


def records_of(memory: Memory, *, deploys: int, clock_offset: float) -> Records:
    """Return the records to keep.

    Args:
        memory: of a controller.
        deploys: how many there have been.
        clock_offset: added to a time of the state to get Unix time.
    """
    everyone = replica_records(memory, memory.state.replicas, clock_offset=clock_offset)
    return {**shared_records(memory, deploys=deploys, clock_offset=clock_offset), **everyone}


def shared_records(memory: Memory, *, deploys: int, clock_offset: float) -> Records:
    """Return the part of ``records_of`` that does not belong to replicas."""
    records: dict[Key, Record] = {
        (Table.MESH, "facts"): MeshFacts(
            deploys=deploys, cordoned_nodes=tuple(sorted(memory.state.cordoned_nodes))
        )
    }
    for position, (name, info) in enumerate(memory.applications.infos.items()):
        condition = memory.state.conditions.get(name)
        records[Table.APPLICATIONS, name] = ApplicationRecord(
            name=name, position=position, info=info, condition=condition
        )
    for position, desired in enumerate(memory.state.deployments.values()):
        records[Table.DEPLOYMENTS, str(desired.key)] = _deployment(
            desired, position, memory.state.conditions.get(desired.key), clock_offset
        )
        for version in (desired.target, desired.fallback):
            if version is not None:
                records[Table.VERSIONS, version.id] = _version(version, clock_offset)
    for version_id, spec in memory.specs.items():
        records[Table.SPECS, version_id] = SpecRecord(spec)
    for formers in memory.reconfiguring.former.values():
        for key, former in formers.items():
            records[Table.FORMERS, str(key)] = SpecRecord(former.spec)
    return records


def replica_records(
    memory: Memory, replicas: Iterable[ReplicaId], *, clock_offset: float
) -> Records:
    """Return the records of those of ``replicas`` that are there."""
    found = ((each, memory.state.replicas.get(each)) for each in replicas)
    return {
        (Table.REPLICAS, replica_id): _replica(
            replica, memory.memos.get(replica_id, ""), clock_offset
        )
        for replica_id, replica in found
        if replica is not None
    }


def _unix(time: float | None, clock_offset: float) -> float | None:
    return None if time is None else time + clock_offset


def _deployment(
    desired: Desired, position: int, condition: Condition | None, clock_offset: float
) -> DeploymentRecord:
    return DeploymentRecord(
        application=desired.key.application,
        name=desired.key.deployment,
        position=position,
        target=desired.target.id if desired.target is not None else None,
        fallback=desired.fallback.id if desired.fallback is not None else None,
        failure=desired.failure,
        services=desired.services,
        file_descriptors=desired.file_descriptors,
        http=desired.http,
        http_prefixes=desired.http_prefixes,
        idempotent_methods=desired.idempotent_methods,
        engine_models=desired.engine_models,
        ends_by=_unix(desired.ends_by, clock_offset),
        condition=condition,
    )


def _version(version: Version, clock_offset: float) -> VersionRecord:
    return VersionRecord(
        id=version.id,
        slots=tuple(_slots(version, clock_offset)),
        proven=version.proven,
        completed=version.completed,
        failed=version.failed,
        reached=version.reached,
        is_external=version.is_external,
        num_replicas=version.scaling.target,
        scaling_reason=version.scaling.reason,
        scaled_at=version.scaling.since,
        start_failures=version.start_failures,
        first_failure=version.first_failure,
        config=version.config,
    )


def _slots(version: Version, clock_offset: float) -> Iterator[SlotRecord]:
    for index, slot in sorted(version.slots.items()):
        not_before = slot.start_not_before
        failures = slot.deaths_in_a_row or slot.start_failures_in_a_row
        if not (failures or not_before or slot.failed_in_user_code or slot.last_end):
            yield _unharmed(index)
            continue
        yield SlotRecord(
            index=index,
            deaths_in_a_row=slot.deaths_in_a_row,
            start_failures_in_a_row=slot.start_failures_in_a_row,
            start_not_before=not_before + clock_offset if not_before else 0.0,
            failed_in_user_code=slot.failed_in_user_code,
            last_end=slot.last_end,
        )


@functools.lru_cache(4096)
def _unharmed(index: int) -> SlotRecord:
    return SlotRecord(index=index)


def _replica(replica: Replica, memo: str, clock_offset: float) -> ReplicaRecord:
    is_ours = replica.slot != EXTERNAL_SLOT
    return ReplicaRecord(
        id=replica.id,
        application=replica.key.application,
        deployment=replica.key.deployment,
        version=replica.version,
        slot=replica.slot,
        created_at=replica.created_at + clock_offset,
        phase=replica.phase,
        ready_at=_unix(replica.ready_at, clock_offset),
        stopping_at=_unix(replica.stopping_at, clock_offset),
        kill_at=_unix(replica.kill_at, clock_offset),
        killed=replica.killed,
        # Of those that come by themselves the name is all; they say the rest again.
        pid=replica.pid if is_ours else 0,
        memo=memo,
        rank=replica.rank if is_ours else None,
        place=replica.place,
        metadata_json=replica.metadata_json if is_ours else "",
        config=replica.config,
        cordoned=replica.cordoned,
        gang=replica.gang,
    )


class Recorder:
    """Writes to a store what has changed.

    Args:
        store: where; None: nowhere, since this mesh ends with its driver.
        clock_offset: added to a time of the state to get Unix time.
    """

    def __init__(self, store: Store | None, clock_offset: float) -> None:
        self.clock_offset = clock_offset
        self.keeps_applications = False
        """The mesh ends and its applications will come back: only replicas are written."""
        self._store = store
        # The records written last: of replicas, and of everything else.
        self._replicas: dict[Key, Record] = {}
        self._shared: Records = {}
        # Replicas whose records may have changed since.
        self._changed: Follower = {}
        self._is_following = False
        self._problem = ""
        self._again_at: float | None = None

    def load(self) -> Records:
        """Return the records of an earlier controller; ``MeshError`` if they cannot be read."""
        records = {} if self._store is None else self._store.load()
        self._replicas = {key: each for key, each in records.items() if key[0] is Table.REPLICAS}
        self._shared = {key: each for key, each in records.items() if key[0] is not Table.REPLICAS}
        self._changed.update(dict.fromkeys(ReplicaId(name) for _, name in self._replicas))
        return records

    def admit(self, specs: Specs) -> None:
        """Store what a deploy brings, before acting on it.

        Raises:
            MeshError: there is no room for it, or nothing can be written at all.
        """
        if self._store is None:
            return
        self._forget_lost(self._store, self._changed)
        put = {(Table.SPECS, version_id): SpecRecord(spec) for version_id, spec in specs.items()}
        self._store.write(Changes(put))
        self._shared = {**self._shared, **put}

    def record(self, memory: Memory, *, deploys: int, now: float) -> None:
        """Write the changes since the last write; a failed write is retried."""
        if self._store is None:
            return
        if not self._is_following:
            self._is_following = True
            before, self._changed = self._changed, memory.state.replicas.follow()
            self._changed |= before
        self._forget_lost(self._store, self._changed)
        shared = (
            self._shared
            if self.keeps_applications
            else shared_records(memory, deploys=deploys, clock_offset=self.clock_offset)
        )
        # Only those that may differ: a mesh of thousands changes a few of them in one step.
        known = {
            key: self._replicas[key]
            for each in self._changed
            if (key := (Table.REPLICAS, str(each))) in self._replicas
        }
        after = replica_records(memory, self._changed, clock_offset=self.clock_offset)
        changes = changes_between({**self._shared, **known}, {**shared, **after})
        if not changes:
            self._changed.clear()
            self._again_at = None
            return
        try:
            self._store.write(changes)
        except MeshError as error:
            self._again_at = now + _RETRY_INTERVAL_S
            if str(error) != self._problem:
                _LOGGER.error("%s. What runs goes on; no deploy is taken", error)
            self._problem = str(error)
        else:
            if self._problem:
                _LOGGER.warning("the state of the mesh is written again")
            for key in known.keys() - after.keys():
                del self._replicas[key]
            self._replicas |= after
            self._changed.clear()
            self._shared, self._problem, self._again_at = shared, "", None

    def _forget_lost(self, store: Store, changed: Follower) -> None:
        """Write everything again if somebody has removed the store."""
        if (self._shared or self._replicas) and store.is_lost():
            _LOGGER.warning("the state of the mesh has been removed by somebody else; made anew")
            changed.update(dict.fromkeys(ReplicaId(name) for _, name in self._replicas))
            self._shared, self._replicas = {}, {}

    def next_wakeup(self) -> float | None:
        """Return when to try again, ``None`` when everything is written."""
        return self._again_at

    def notices(self) -> tuple[str, ...]:
        """Return notices for ``pyserve status``."""
        return (f"{self._problem}. What runs goes on; no deploy is taken",) if self._problem else ()

    def close(self) -> None:
        """Close the store; nothing is written any more. Idempotent."""
        if self._store is not None:
            self._store.close()
            self._store = None
