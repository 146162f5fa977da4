"""Continues where an earlier controller ended, and stores what the next one needs.

The thin driver of ``restore`` and ``recording.py``: the controller calls it in each step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyserve.config import DeploymentOptions
from pyserve.config.control import KILL_MARGIN_S, REJOIN_TIMEOUT_S
from pyserve.control.reconcile.decide import Action, KillReplica, StopReplica
from pyserve.control.reconcile.rollout import Former, Reconfiguring
from pyserve.control.recording import Memory, Recorder, Specs
from pyserve.control.registry import Registry
from pyserve.control.replicas.identity import drop_unused
from pyserve.control.replicas.starting import Processes
from pyserve.control.runs import Runs
from pyserve.control.state.applications import Applications
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Slot
from pyserve.control.state.specs import calls_of
from pyserve.control.store.records import (
    ApplicationRecord,
    DeploymentRecord,
    MeshFacts,
    Record,
    Records,
    ReplicaRecord,
    SpecRecord,
    Table,
    VersionRecord,
)
from pyserve.errors import MeshError
from pyserve.types import ApplicationName, DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)


class Recovery:
    """Keeps a controller's memory and its store the same.

    Args:
        memory: of the controller; empty until ``resume``.
        recorder: writes it.
        processes: of the replicas.
        registry: publishes nothing while replicas are waited for.

    Attributes:
        deploys: how many there have been.
    """

    def __init__(
        self, memory: Memory, recorder: Recorder, processes: Processes, registry: Registry
    ) -> None:
        self.deploys = 0
        self._memory = memory
        self._recorder = recorder
        self._processes = processes
        self._registry = registry
        self._hold = Hold()
        self._has_read = False

    def resume(self, runs: Runs, now: float) -> None:
        """Read the store, and find the replicas that live; before anybody can join.

        Raises:
            MeshError: the store cannot be read, or holds nothing though replicas of a mesh live.
        """
        records = self._recorder.load()
        if not records and (strays := self._processes.count_strays()):
            raise MeshError(
                f"the state of the mesh is empty, but replicas of it run ({strays}), and go on; "
                "put back the files of its state into PYSERVE_HOME, or end the replicas, and "
                "start it again"
            )
        self._has_read = True
        restored = restore(records, now=now, clock_offset=self._recorder.clock_offset)
        self.deploys = restored.deploys
        memory = self._memory
        memory.state.deployments.update(restored.state.deployments)
        memory.state.replicas.update(restored.state.replicas)
        memory.state.conditions.update(restored.state.conditions)
        memory.state.cordoned_nodes.update(restored.state.cordoned_nodes)
        memory.applications.infos.update(restored.applications.infos)
        memory.reconfiguring.former.update(restored.reconfiguring.former)
        memory.specs.update(restored.specs)
        self._hold.begin(restored, now)
        self.look(now)
        for replica in list(memory.state.replicas.values()):
            spec, memo = memory.specs[replica.version], restored.memos[replica.id]
            self._processes.adopt(replica, spec, memo)
        self._processes.end_strays()
        for info in memory.applications.infos.values():
            for run in (info.run, info.previous.run if info.previous is not None else None):
                if run is not None:
                    runs.expect(run)
        if memory.applications.infos:
            _LOGGER.info(
                "the mesh goes on with %d applications and %d replicas that live",
                len(memory.applications.infos),
                len(memory.state.replicas),
            )
        # Taken from the clock, so that no version of an earlier controller is ever used again.
        self._registry.begin(round((now + self._recorder.clock_offset) * 1000), held=True)

    def admit(self, specs: Specs, deploys: int) -> None:
        """Store what deploys bring; ``MeshError`` if that fails, and nothing has changed."""
        self._recorder.admit(specs)
        self.deploys += deploys

    def look(self, now: float) -> None:
        """Check which replicas are back."""
        self._hold.look(self._memory.state, now)

    def allowed(self, actions: Sequence[Action]) -> list[Action]:
        """Return the actions that are allowed while replicas are waited for."""
        return self._hold.allowed(actions, self._memory.state)

    def record(self, now: float) -> None:
        """Write the changes; after that views may be published, once all replicas are back."""
        drop_unused(self._memory.state, self._memory.specs)
        self._recorder.record(self._memory, deploys=self.deploys, now=now)
        if self._registry.held and not self._hold.awaited:
            self._registry.release()

    def next_wakeups(self) -> tuple[float | None, ...]:
        """Return when there is something to do without an event."""
        return (self._hold.next_wakeup(), self._recorder.next_wakeup())

    def notices(self) -> tuple[str, ...]:
        """Return notices for users."""
        return self._recorder.notices()

    def keep_applications(self) -> None:
        """Let the applications come back after this end of the mesh."""
        self._recorder.keeps_applications = True

    def close(self, now: float) -> None:
        """Write the last change, and close the store."""
        # Before the store has been read the memory is empty, and must not replace it.
        if self._has_read:
            self._recorder.record(self._memory, deploys=self.deploys, now=now)
        self._recorder.close()


# Restores a new controller's state from the previous one's records.
#
# `restore` returns the state as it was, with every replica absent: those that live join again.
# `Hold` limits how long that may take. Meanwhile the applications concerned are left as they are,
# and no views are published: what routers saw last is better than a view without those replicas.

Kind = TypeVar("Kind", bound=Record)


@dataclass(slots=True)
class Restored:
    """The state that the records contain.

    Attributes:
        specs: what replicas run, by the ids of versions.
        memos: how to find the processes of replicas.
        awaited: replicas that served, with their applications.
        deploys: how many there have been.
    """

    state: MeshState = field(default_factory=MeshState)
    applications: Applications = field(default_factory=Applications)
    reconfiguring: Reconfiguring = field(default_factory=Reconfiguring)
    specs: dict[str, mesh_pb2.DeploymentSpec] = field(default_factory=dict)
    memos: dict[ReplicaId, str] = field(default_factory=dict)
    awaited: dict[ReplicaId, ApplicationName] = field(default_factory=dict)
    deploys: int = 0


def restore(records: Records, *, now: float, clock_offset: float) -> Restored:
    """Return the parts of a controller as they were.

    Args:
        records: as ``records_of`` made them.
        now: on the clock of the state's times.
        clock_offset: added to such a time to get Unix time.
    """
    restored = Restored()
    facts = _all(records, Table.MESH, MeshFacts)
    restored.deploys = max((each.deploys for each in facts), default=0)
    restored.state.cordoned_nodes.update(name for each in facts for name in each.cordoned_nodes)
    for info in sorted(
        _all(records, Table.APPLICATIONS, ApplicationRecord), key=lambda item: item.position
    ):
        restored.applications.infos[info.name] = info.info
        if info.condition is not None:
            restored.state.conditions[info.name] = info.condition
    restored.specs = {
        key: record.spec
        for (table, key), record in records.items()
        if table is Table.SPECS and isinstance(record, SpecRecord)
    }
    _restore_deployments(restored, records, clock_offset)
    _restore_formers(restored, records)
    for replica in sorted(
        _all(records, Table.REPLICAS, ReplicaRecord), key=lambda item: item.created_at
    ):
        _restore_replica(restored, replica, now, clock_offset)
    return restored


def _all(records: Records, table: Table, kind: type[Kind]) -> list[Kind]:
    return [
        record for (of, _), record in records.items() if of is table and isinstance(record, kind)
    ]


def _restore_deployments(restored: Restored, records: Records, clock_offset: float) -> None:
    versions = {
        record.id: _version(record, restored.specs[record.id], clock_offset)
        for record in _all(records, Table.VERSIONS, VersionRecord)
        if record.id in restored.specs
    }
    for record in sorted(
        _all(records, Table.DEPLOYMENTS, DeploymentRecord), key=lambda item: item.position
    ):
        key = DeploymentKey(record.application, record.name)
        restored.state.deployments[key] = Desired(
            key=key,
            target=versions.get(record.target or ""),
            fallback=versions.get(record.fallback or ""),
            failure=record.failure,
            services=record.services,
            file_descriptors=record.file_descriptors,
            http=record.http,
            http_prefixes=record.http_prefixes,
            idempotent_methods=record.idempotent_methods,
            engine_models=record.engine_models,
            ends_by=None if record.ends_by is None else record.ends_by - clock_offset,
        )
        if record.condition is not None:
            restored.state.conditions[key] = record.condition


def _version(record: VersionRecord, spec: mesh_pb2.DeploymentSpec, clock_offset: float) -> Version:
    slots = {
        slot.index: Slot(
            deaths_in_a_row=slot.deaths_in_a_row,
            start_failures_in_a_row=slot.start_failures_in_a_row,
            start_not_before=slot.start_not_before and slot.start_not_before - clock_offset,
            failed_in_user_code=slot.failed_in_user_code,
            last_end=slot.last_end,
        )
        for slot in record.slots
    }
    version = Version(
        record.id,
        DeploymentOptions.from_peer(spec.options_json),
        slots=slots,
        proven=record.proven,
        completed=record.completed,
        failed=record.failed,
        start_failures=record.start_failures,
        first_failure=record.first_failure,
        sys_path=tuple(spec.code.sys_path),
        calls=calls_of(spec),
        takes_http=spec.takes_http,
        config=record.config,
        reached=record.reached,
        is_external=record.is_external,
    )
    note = version.scaling
    note.target, note.reason, note.since = (
        record.num_replicas,
        record.scaling_reason,
        record.scaled_at,
    )
    return version


def _restore_formers(restored: Restored, records: Records) -> None:
    for key in restored.state.deployments:
        record = records.get((Table.FORMERS, str(key)))
        if isinstance(record, SpecRecord):
            target = restored.state.deployments[key].target
            options = DeploymentOptions.from_peer(record.spec.options_json)
            former = Former("" if target is None else target.id, options, record.spec)
            restored.reconfiguring.former.setdefault(key.application, {})[key] = former


def _restore_replica(
    restored: Restored, record: ReplicaRecord, now: float, clock_offset: float
) -> None:
    if record.phase is Phase.RUNNING:
        restored.awaited[record.id] = record.application
    spec = restored.specs.get(record.version)
    if record.slot == EXTERNAL_SLOT or spec is None:
        return
    options = DeploymentOptions.from_peer(spec.options_json)
    replica = Replica(
        id=record.id,
        key=DeploymentKey(record.application, record.deployment),
        version=record.version,
        options=options,
        slot=record.slot,
        # A clock that was set back must not make it younger than now.
        created_at=min(record.created_at - clock_offset, now),
        phase=record.phase,
        pid=record.pid,
        place=record.place,
        rank=record.rank,
        health_at=now,
        metadata_json=record.metadata_json,
        config=record.config,
        calls=calls_of(spec),
        cordoned=record.cordoned,
        gang=record.gang,
        node_cordoned=record.place.node in restored.state.cordoned_nodes,
    )
    if record.ready_at is not None:
        replica.ready_at = min(record.ready_at - clock_offset, now)
    if record.phase is Phase.RUNNING:
        replica.left_at = now
    elif record.phase is Phase.STOPPING:
        _restore_end(replica, record, now, clock_offset)
    restored.state.replicas[replica.id] = replica
    restored.memos[replica.id] = record.memo


def _restore_end(replica: Replica, record: ReplicaRecord, now: float, clock_offset: float) -> None:
    """Let one that drains end when it would have; older records do not have that time."""
    grace_s = replica.options.graceful_shutdown_timeout_s + KILL_MARGIN_S
    latest = now if record.killed else now + grace_s
    began, ends = record.stopping_at, record.kill_at
    # As above, a clock that was set back must not make it later.
    replica.stopping_at = now if began is None else min(began - clock_offset, now)
    replica.kill_at = latest if ends is None else min(ends - clock_offset, latest)


@dataclass(slots=True)
class Hold:
    """The replicas that should join again before anything is decided about their applications.

    Attributes:
        awaited: those that have not yet, with their applications.
        until: when waiting ends.
    """

    awaited: dict[ReplicaId, ApplicationName] = field(default_factory=dict)
    until: float = 0.0
    _own: frozenset[ReplicaId] = frozenset()

    def begin(self, restored: Restored, now: float) -> None:
        """Wait for the replicas that served, for the time one may take to find its controller."""
        self.awaited = dict(restored.awaited)
        self._own = frozenset(restored.state.replicas)
        self.until = now + REJOIN_TIMEOUT_S

    def look(self, state: MeshState, now: float) -> None:
        """Stop waiting for replicas that have joined or ended; for all of them once time is up."""
        if now >= self.until:
            self.awaited.clear()
        for replica_id in list(self.awaited):
            replica = state.replicas.get(replica_id)
            if replica_id in self._own if replica is None else replica.joined:
                del self.awaited[replica_id]
        state.awaited = frozenset(self.awaited.values())

    def next_wakeup(self) -> float | None:
        """Return when waiting ends, ``None`` if no replica is waited for."""
        return self.until if self.awaited else None

    def allowed(self, actions: Sequence[Action], state: MeshState) -> list[Action]:
        """Return the actions for applications whose replicas are all back."""
        held = frozenset(self.awaited.values())
        return [action for action in actions if _application(action, state) not in held]


def _application(action: Action, state: MeshState) -> ApplicationName:
    if isinstance(action, (StopReplica, KillReplica)):
        return state.replicas[action.replica_id].key.application
    return action.key.application
