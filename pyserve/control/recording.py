"""Keeps in a store what a new controller has to know: which records there are, and when they go.

``records_of`` is pure. ``Recorder`` writes what differs from what it wrote last, at the end of
each step, before any of the step's actions begins: a replica is known before its process exists.
A store that fails is one message; the mesh goes on as it is, and the next second tries again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyserve.control.applications import Applications
from pyserve.control.reconfiguring import Reconfiguring
from pyserve.control.state import EXTERNAL_SLOT, Condition, Desired, MeshState, Replica, Version
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
        memos: what processes of replicas are found by.
    """

    state: MeshState
    applications: Applications
    reconfiguring: Reconfiguring
    specs: dict[str, mesh_pb2.DeploymentSpec]
    memos: Mapping[ReplicaId, str]


# The records of replicas, each with what it was made of.
Made = dict[ReplicaId, tuple[tuple[object, ...], ReplicaRecord]]


def records_of(
    memory: Memory, *, deploys: int, clock_offset: float, made: Made | None = None
) -> Records:
    """Return what is to be kept.

    Args:
        memory: of a controller.
        deploys: how many there have been.
        clock_offset: what makes a Unix time of a time of the state.
        made: those of the last time, which are used again where nothing has changed: a mesh of
            thousands of replicas changes a few of them in one step.
    """
    made = {} if made is None else made
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
    for replica in memory.state.replicas.values():
        memo = memory.memos.get(replica.id, "")
        of = _ingredients(replica, memo)
        kept = made.get(replica.id)
        if kept is None or kept[0] != of:
            kept = made[replica.id] = (of, _replica(replica, memo, clock_offset))
        records[Table.REPLICAS, replica.id] = kept[1]
    for gone in made.keys() - memory.state.replicas.keys():
        del made[gone]
    return records


def _ingredients(replica: Replica, memo: str) -> tuple[object, ...]:
    """Return what may change in the record of a replica."""
    return (
        replica.phase,
        replica.killed,
        replica.cordoned,
        replica.pid,
        replica.ready_at,
        replica.stopping_at,
        replica.kill_at,
        replica.config,
        replica.rank,
        replica.place,
        replica.metadata_json,
        memo,
    )


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
    )


class Recorder:
    """Writes to a store what has changed.

    Args:
        store: where; None: nowhere, since this mesh ends with its driver.
        clock_offset: what makes a Unix time of a time of the state.
    """

    def __init__(self, store: Store | None, clock_offset: float) -> None:
        self.clock_offset = clock_offset
        self.keeps_applications = False
        """The mesh ends and its applications shall come back: only replicas are written."""
        self._store = store
        self._written: Records = {}
        self._problem = ""
        self._again_at: float | None = None
        self._made: Made = {}

    def load(self) -> Records:
        """Return what a controller before has written; ``MeshError`` if it cannot be read."""
        self._written = {} if self._store is None else self._store.load()
        return self._written

    def admit(self, specs: Specs) -> None:
        """Keep what a deploy brings, before anything follows it.

        Raises:
            MeshError: there is no room for it, or nothing can be written at all.
        """
        if self._store is None:
            return
        self._forget_lost(self._store)
        put = {(Table.SPECS, version_id): SpecRecord(spec) for version_id, spec in specs.items()}
        self._store.write(Changes(put))
        self._written = {**self._written, **put}

    def record(self, memory: Memory, *, deploys: int, now: float) -> None:
        """Write what differs from what was written last; a failure is tried again."""
        if self._store is None:
            return
        self._forget_lost(self._store)
        records = records_of(
            memory, deploys=deploys, clock_offset=self.clock_offset, made=self._made
        )
        if self.keeps_applications:
            records = _with_replicas_of(self._written, records)
        changes = changes_between(self._written, records)
        if not changes:
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
            self._written, self._problem, self._again_at = records, "", None

    def _forget_lost(self, store: Store) -> None:
        if self._written and store.is_lost():
            _LOGGER.warning("the state of the mesh has been removed by somebody else; made anew")
            self._written = {}

    def next_wakeup(self) -> float | None:
        """Return when to try again, ``None`` when everything is written."""
        return self._again_at

    def notices(self) -> tuple[str, ...]:
        """Return what people should know, for ``pyserve status``."""
        return (f"{self._problem}. What runs goes on; no deploy is taken",) if self._problem else ()

    def close(self) -> None:
        """Let go of the store; nothing is written any more. Idempotent."""
        if self._store is not None:
            self._store.close()
            self._store = None


def _with_replicas_of(before: Records, after: Records) -> Records:
    kept = {key: record for key, record in before.items() if key[0] is not Table.REPLICAS}
    replicas = {key: record for key, record in after.items() if key[0] is Table.REPLICAS}
    return {**kept, **replicas}
