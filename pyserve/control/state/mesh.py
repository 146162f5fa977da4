"""The mesh's desired and actual state: plain data, changed by events that carry ``now``.

``MeshState`` decides nothing about what to do next (``reconcile`` does) and performs no I/O.
Times are seconds on one clock that never goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyserve.config import DeploymentOptions
from pyserve.config.control import (
    KILL_MARGIN_S,
    RESTART_FORGET_S,
    START_FAILURES_PER_REPLICA_MAX,
    restart_delay_s,
)
from pyserve.control.state.history import Condition, Decision, ScalingNote, no_decisions
from pyserve.control.state.replica import (
    EXTERNAL_SLOT,
    Counted,
    Failure,
    Phase,
    Place,
    Replica,
    ReplicaIndex,
    Slot,
)
from pyserve.types import ApplicationName, DeploymentKey, ReplicaId, ServiceName

__all__ = ["Desired", "MeshState", "Phase", "Replica", "Version"]


@dataclass(slots=True)
class Version:
    """One deployed form of a deployment: its code, arguments and options.

    Attributes:
        id: unique in the mesh's life; what ``Assign.deployment_version`` carries.
        proven: a replica of it has been ready once.
        completed: all its replicas were ready at once, and no older version served any more.
        failed: it was given up, and is not started again.
        reached: how many replicas it had when it last had as many as it should.
        sys_path: where the driver finds modules.
        calls: the deployments whose handles are among its arguments.
        config: number of its user_config, which may change.
        scaling: what has become of its number of replicas.
        is_external: others start its replicas, as many as they like.
        takes_http: its first replica will answer plain HTTP, as far as the driver knows.
    """

    id: str
    options: DeploymentOptions
    slots: dict[int, Slot] = field(default_factory=dict)
    proven: bool = False
    completed: bool = False
    failed: bool = False
    reached: int = 0
    start_failures: int = 0
    first_failure: Failure | None = None
    sys_path: tuple[str, ...] = ()
    calls: frozenset[DeploymentKey] = frozenset()
    config: int = 0
    scaling: ScalingNote = field(default_factory=ScalingNote)
    is_external: bool = False
    takes_http: bool = False

    @property
    def num_replicas(self) -> int:
        """How many replicas this version gets."""
        if self.is_external:
            return 0
        target = self.scaling.target
        wanted = self.options.initial_num_replicas if target is None else target
        return self.options.whole_gangs(wanted)

    @property
    def start_failures_max(self) -> int:
        """How many starts may fail before the version is given up."""
        per_replica = START_FAILURES_PER_REPLICA_MAX * max(self.num_replicas, 1)
        return min(self.options.max_constructor_retry_count, per_replica)

    def slot(self, index: int) -> Slot:
        """Return the slot, made on first use."""
        return self.slots.setdefault(index, Slot())


@dataclass(slots=True)
class Desired:
    """What one deployment should be.

    Attributes:
        target: the version that should serve; None: the deployment should end.
        fallback: the version that serves until the whole application is settled, and again if
            one of its deployments fails.
        failure: why the last version failed for good; cleared by the next one.
        ends_by: when an ending deployment stops waiting for callers; None: no limit is set.
        services: full names, as the replicas registered them.
        file_descriptors: serialized, dependencies first, for reflection.
        http: it takes plain HTTP.
        http_prefixes: where, besides the application's own prefix.
        idempotent_methods: paths of those that may be called again after a failure.
        engine_models: serialized ``EngineModel``s of an engine for language models.
        forget_at: it ends then, because its last replica, which others had started, has gone.
        decisions: on its number of replicas, the latest ones of this controller.
    """

    key: DeploymentKey
    target: Version | None
    fallback: Version | None = None
    failure: Failure | None = None
    ends_by: float | None = None
    services: tuple[ServiceName, ...] = ()
    file_descriptors: tuple[bytes, ...] = ()
    http: bool = False
    http_prefixes: tuple[str, ...] = ()
    idempotent_methods: tuple[str, ...] = ()
    engine_models: tuple[bytes, ...] = ()
    forget_at: float | None = None
    decisions: deque[Decision] = field(default_factory=no_decisions)

    def is_settled(self) -> bool:
        """Nothing is left to bring up or to take out of service."""
        return self.target is not None and self.target.completed


@dataclass(slots=True)
class MeshState:
    """All deployments and replicas of a mesh, and the events that change them.

    Attributes:
        notes: events since they were last taken, for those who wait for a deployment.
        incidents: failures of replicas that had served or did not end, for those who run them.
        conditions: of everything, at the last look.
        cordoned_nodes: whose replicas get no new calls.
        awaited: applications whose replicas must join again first: they are left as they were.
        counts: of replicas, for metrics.
    """

    deployments: dict[DeploymentKey, Desired] = field(default_factory=dict)
    replicas: ReplicaIndex = field(default_factory=ReplicaIndex)
    notes: list[tuple[DeploymentKey, str]] = field(default_factory=list)
    incidents: list[tuple[DeploymentKey, str]] = field(default_factory=list)
    conditions: dict[ApplicationName | DeploymentKey, Condition] = field(default_factory=dict)
    cordoned_nodes: set[str] = field(default_factory=set)
    awaited: frozenset[ApplicationName] = frozenset()
    counts: Counted = field(default_factory=Counted)

    def of_application(self, name: ApplicationName) -> Iterator[Desired]:
        """Yield the deployments of one application."""
        return (item for key, item in self.deployments.items() if key.application == name)

    def of_deployment(self, key: DeploymentKey) -> Iterator[Replica]:
        """Yield the replicas of one deployment, of any version and phase."""
        return iter(self.replicas.of(key).values())

    def longest_grace_s(self) -> float:
        """Return the longest ``graceful_shutdown_timeout_s`` of the deployments, 0 without any."""
        both = ((item.target, item.fallback) for item in self.deployments.values())
        graces = (
            each.options.graceful_shutdown_timeout_s for pair in both for each in pair if each
        )
        return max(graces, default=0.0)

    # Requests of drivers.

    def on_deploy(
        self, application: ApplicationName, targets: dict[DeploymentKey, Version]
    ) -> None:
        """Replace the application; deployments not in ``targets`` end once those are complete."""
        for desired in list(self.of_application(application)):
            self._retarget(desired, targets.get(desired.key))
        for key, version in targets.items():
            self.deployments.setdefault(key, Desired(key=key, target=version))

    def on_limits(self, key: DeploymentKey, options: DeploymentOptions) -> list[ReplicaId]:
        """Give the target other limits; return its replicas, which have to be notified."""
        target = self.deployments[key].target
        assert target is not None, "limits change while a target serves"
        if target.options == options:
            return []
        before = target.options.ongoing_requests_limit()
        target.config += options.user_config_json != target.options.user_config_json
        target.options = options
        told = [item for item in self.of_deployment(key) if item.version == target.id]
        for replica in told:
            replica.options = options
        if (limit := options.ongoing_requests_limit()) != before:
            self.notes.append((key, f"its replicas take {limit} requests at once from now on"))
        return [replica.id for replica in told]

    def on_delete(self, application: ApplicationName, *, ends_by: float | None = None) -> None:
        """Let every deployment of the application end, and drain until then at most."""
        for desired in self.of_application(application):
            desired.target = desired.fallback = desired.failure = None
            if ends_by is not None:
                desired.ends_by = ends_by

    def on_hurry(self, application: ApplicationName, *, now: float) -> None:
        """Let the application's replicas end without waiting for their calls in flight."""
        for replica in self.replicas.values():
            if replica.key.application == application:
                replica.options = replace(replica.options, graceful_shutdown_timeout_s=0.0)
                if replica.phase is Phase.STOPPING:
                    replica.kill_at = now

    def on_withdraw(self, application: ApplicationName) -> None:
        """The current deploy is not wanted any more; the former version serves on."""
        for desired in self.of_application(application):
            desired.target, desired.fallback = desired.fallback, None
            desired.failure = None

    def on_external(self, replica: Replica) -> None:
        """A replica that was started outside the mesh has said Hello."""
        self.counts.of(replica.key).starts += 1
        self.replicas[replica.id] = replica

    def _retarget(self, desired: Desired, version: Version | None) -> None:
        former = None if desired.target is version else desired.target
        if former is not None and (
            former.completed or (former.proven and not former.failed and desired.fallback is None)
        ):
            desired.fallback = former
        desired.target = version
        desired.failure = desired.ends_by = None

    # Actions of reconcile that the driver has begun.

    def on_start(self, replica: Replica) -> None:
        """A process is being started for ``replica``."""
        self.counts.of(replica.key).starts += 1
        self.replicas[replica.id] = replica
        version = self._version(replica)
        if version is not None:
            version.slot(replica.slot)
        self.notes.append((replica.key, f"replica {replica.id} starts"))

    def on_stop(self, replica_id: ReplicaId, *, grace_s: float, now: float) -> None:
        """The replica has been told to drain; it is out of every view from now on."""
        replica = self.replicas[replica_id]
        replica.phase, replica.stopping_at = Phase.STOPPING, now
        replica.kill_at = now + grace_s + KILL_MARGIN_S

    def on_kill(self, replica_id: ReplicaId, *, failure: Failure | None, now: float) -> None:
        """The replica's process is being killed; ``failure`` says why its start failed."""
        replica = self.replicas[replica_id]
        if failure is not None:
            self._fail_start(replica, failure)
        if replica.phase is Phase.STOPPING:
            self._incident(replica, replica.overrun)
        else:
            if failure is not None:
                self._count_death(replica, now)
            replica.phase, replica.stopping_at = Phase.STOPPING, now
        replica.killed = True
        replica.kill_at = now

    def on_version_failed(self, key: DeploymentKey, failure: Failure) -> None:
        """The target is given up; the former version serves on, in all of the application."""
        target = self.deployments[key].target
        assert target is not None
        target.failed = True
        for desired in self.of_application(key.application):
            if desired.fallback is not None:
                desired.target, desired.fallback = desired.fallback, None
        self.deployments[key].failure = failure

    def on_version_completed(self, key: DeploymentKey) -> None:
        """All wanted replicas of the target serve, and no others do."""
        target = self.deployments[key].target
        assert target is not None
        note = f"has {target.num_replicas} replicas now" if target.completed else "is ready"
        target.completed, target.reached = True, target.num_replicas
        application = list(self.of_application(key.application))
        if all(item.is_settled() or item.target is None for item in application):
            for item in application:
                item.fallback = None
        self.notes.append((key, note))

    def on_observed(
        self, words: Mapping[ApplicationName | DeploymentKey, str], *, now: float
    ) -> None:
        """Set the conditions of all deployments and applications; ``now`` is Unix time."""
        before = self.conditions
        self.conditions = {}
        for of, word in words.items():
            former = before.get(of)
            if former is None:
                self.conditions[of] = Condition(word, now)
            elif _application(of) in self.awaited:
                self.conditions[of] = former
            else:
                self.conditions[of] = former.becomes(word, now)

    def on_forget(self, key: DeploymentKey) -> None:
        """The deployment has ended."""
        del self.deployments[key]
        self.counts.pop(key, None)

    # Events of replicas and processes.

    def on_launched(self, replica_id: ReplicaId, *, pid: int) -> None:
        """The replica's process exists, and may have ended since."""
        if replica_id in self.replicas:
            self.replicas[replica_id].pid = pid

    def on_waiting(self, replica_id: ReplicaId, why: str) -> None:
        """The launcher cannot begin the replica's process yet, for want of ``why``; "": it can."""
        replica = self.replicas[replica_id]
        if why not in ("", replica.waits_for):
            self.notes.append((replica.key, f"replica {replica.id} waits for {why}"))
        replica.waits_for = why

    def on_joined(self, replica_id: ReplicaId, *, pid: int, place: Place) -> None:
        """The replica's Join stream stands."""
        replica = self.replicas[replica_id]
        replica.joined, replica.left_at = True, None
        replica.asked_at, replica.hangs = None, False
        replica.pid, replica.place = pid, place
        replica.node_cordoned = place.node in self.cordoned_nodes

    def on_ready(
        self, replica_id: ReplicaId, *, place: Place, now: float, metadata_json: str = ""
    ) -> None:
        """The replica has constructed its class and takes calls."""
        replica = self.replicas[replica_id]
        replica.place, replica.metadata_json = place, metadata_json
        replica.health_at, replica.health_failures = now, 0
        if replica.phase is not Phase.STARTING:
            return
        replica.phase, replica.ready_at = Phase.RUNNING, now
        self.counts.of(replica.key).on_ready(now - replica.created_at)
        version = self._version(replica)
        if version is not None:
            version.proven = True
            slot = version.slot(replica.slot)
            slot.start_failures_in_a_row, slot.last_end = 0, ""
            if slot.lost_at is not None:
                without_s, slot.lost_at = now - slot.lost_at, None
                self._incident(replica, f"serves, {without_s:.1f} s after the one before was lost")
        took_s = now - replica.created_at
        self.notes.append((replica.key, f"replica {replica.id} is ready after {took_s:.1f} s"))

    def on_failed(self, replica_id: ReplicaId, *, failure: Failure, now: float) -> None:
        """The replica says that it cannot come up; it ends by itself now."""
        replica = self.replicas[replica_id]
        if replica.phase is Phase.STARTING:
            self._fail_start(replica, failure)
            self._count_death(replica, now)
        replica.phase, replica.stopping_at = Phase.STOPPING, now
        replica.kill_at = now + KILL_MARGIN_S

    def on_health(
        self, replica_id: ReplicaId, *, healthy: bool, now: float, reason: str = ""
    ) -> None:
        """The replica reports the result of one check."""
        replica = self.replicas[replica_id]
        replica.health_at = now
        if healthy and replica.health_failures:
            self._incident(replica, "passes its health check again")
        elif not healthy and not replica.health_failures:
            self._incident(replica, f"fails its health check: {reason}")
        replica.health_failures = 0 if healthy else replica.health_failures + 1
        replica.ailment = "" if healthy else reason

    def on_silent(self, replica_id: ReplicaId) -> None:
        """The replica has owed a sign of life for too long."""
        replica = self.replicas[replica_id]
        if not replica.silent:
            replica.silent = True
            self._incident(replica, "does not answer health checks")

    def on_hang(self, replica_id: ReplicaId) -> None:
        """The replica has owed a sign of life for so long that it counts as hanging."""
        self.replicas[replica_id].hangs = True

    def on_heard(self, replica_id: ReplicaId) -> None:
        """The replica has given a sign of life."""
        replica = self.replicas[replica_id]
        replica.asked_at, replica.hangs = None, False
        if replica.silent:
            replica.silent = False
            self._incident(replica, "answers again")

    def on_cordoned(self, replica_id: ReplicaId) -> None:
        """The replica was taken out of rotation, or back."""
        replica = self.replicas[replica_id]
        is_out = replica.cordoned or replica.node_cordoned
        says = "is cordoned: it gets no new calls" if is_out else "gets calls again"
        self._incident(replica, says)

    def on_draining(self, replica_id: ReplicaId, *, grace_s: float, now: float) -> None:
        """The replica stops by itself (told so from outside)."""
        if self.replicas[replica_id].phase is not Phase.STOPPING:
            self.on_stop(replica_id, grace_s=grace_s, now=now)

    def on_left(self, replica_id: ReplicaId, *, now: float) -> None:
        """The replica's Join stream has ended; it is out of every view from now on."""
        replica = self.replicas[replica_id]
        replica.joined, replica.left_at = False, now
        if replica.slot == EXTERNAL_SLOT:
            self.counts.on_end(replica, now)
            del self.replicas[replica_id]

    def on_exited(self, replica_id: ReplicaId, *, summary: str, now: float) -> None:
        """The replica's process has ended; ``summary`` says how."""
        replica = self.replicas.pop(replica_id, None)
        if replica is None:
            return
        said = f"replica {replica.id} {summary}"
        self.counts.on_end(replica, now)
        if replica.phase is Phase.STARTING:
            self._count_start_failure(replica, Failure(said))
        if replica.phase is not Phase.STOPPING:
            self._count_death(replica, now, said)
            self._count_short_service(replica, said, now)
            self.notes.append((replica.key, said))
        if replica.phase is Phase.RUNNING:
            # Its last output is in the same terminal already.
            how = summary.partition("; ")[0].removeprefix("was ").removeprefix("ended with ")
            self._lose(replica, f"ended ({how})", now)

    def version_of(self, key: DeploymentKey, version_id: str) -> Version | None:
        """Return the target or the fallback of that id."""
        desired = self.deployments.get(key)
        candidates = (desired.target, desired.fallback) if desired is not None else ()
        return next((item for item in candidates if item and item.id == version_id), None)

    def on_replaced(self, replica_id: ReplicaId, reason: str, now: float) -> None:
        """A replica that runs is ended because of ``reason``."""
        replica = self.replicas[replica_id]
        self._lose(replica, reason, now)
        why = f": {replica.ailment}" if replica.ailment else ""
        self._count_short_service(replica, f"replica {replica.id} {reason}{why}", now)

    def _incident(self, replica: Replica, text: str) -> None:
        self.incidents.append((replica.key, f"replica {replica.id} {text}"))

    def _lose(self, replica: Replica, how: str, now: float) -> None:
        version = self._version(replica)
        if version is not None and replica.slot != EXTERNAL_SLOT:
            slot = version.slot(replica.slot)
            slot.lost_at = now if slot.lost_at is None else slot.lost_at
            wait_s = slot.start_not_before - now
            how += ", starting another" + (f" in {wait_s:.0f} s" if wait_s > 0 else "")
        self._incident(replica, how)

    def _version(self, replica: Replica) -> Version | None:
        return self.version_of(replica.key, replica.version)

    def _count_start_failure(self, replica: Replica, failure: Failure) -> None:
        version = self._version(replica)
        if version is None:
            return
        slot = version.slot(replica.slot)
        slot.start_failures_in_a_row += 1
        slot.failed_in_user_code |= failure.user_code
        version.start_failures += 1
        first = version.first_failure
        if first is None or (failure.user_code and not first.user_code):
            version.first_failure = failure

    def _count_short_service(self, replica: Replica, how: str, now: float) -> None:
        """Hold it against an update when one that has just begun to serve ends."""
        desired = self.deployments.get(replica.key)
        if desired is None or desired.fallback is None:
            return
        version = desired.target
        if version is None or version.id != replica.version or version.completed:
            return
        if replica.ready_at is not None and now - replica.ready_at < RESTART_FORGET_S:
            version.start_failures += 1
            version.first_failure = version.first_failure or Failure(how)

    def _fail_start(self, replica: Replica, failure: Failure) -> None:
        self._count_start_failure(replica, failure)
        # During a deploy, its own report has the failure in full; later only the incident has it.
        self.notes.append((replica.key, f"replica {replica.id} failed"))
        if (version := self._version(replica)) is not None and version.completed:
            self._incident(replica, f"failed: {failure.summary}")

    def _count_death(self, replica: Replica, now: float, how: str = "") -> None:
        version = self._version(replica)
        if version is None:
            return
        slot = version.slot(replica.slot)
        if replica.ready_at is not None and now - replica.ready_at >= RESTART_FORGET_S:
            slot.deaths_in_a_row = 0
        slot.deaths_in_a_row, slot.last_end = slot.deaths_in_a_row + 1, how
        slot.start_not_before = now + restart_delay_s(slot.deaths_in_a_row)


def _application(of: ApplicationName | DeploymentKey) -> ApplicationName:
    return of.application if isinstance(of, DeploymentKey) else of
