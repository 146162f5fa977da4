"""A mesh without processes: real state and decisions, virtual time, replicas by script."""

import itertools
from collections.abc import Callable
from dataclasses import replace

from pyserve.config import DeploymentOptions
from pyserve.control.reconcile.decide import (
    NOT_NEEDED,
    Action,
    CompleteVersion,
    FailVersion,
    ForgetDeployment,
    KillReplica,
    StartReplica,
    StopReplica,
    next_wakeup,
    reconcile,
)
from pyserve.control.reconcile.start_limits import limit_starts
from pyserve.control.state.applications import HttpRoutes
from pyserve.control.state.mesh import MeshState, Phase, Replica, Version
from pyserve.control.state.replica import Failure, Place
from pyserve.control.state.traffic import Infos
from pyserve.control.views import News
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import mesh_pb2

APPLICATION = ApplicationName("shop")
USER_ERROR = Failure("ValueError: no model", "Traceback ...", user_code=True)
_ROUNDS_MAX = 50


def key(name: str = "Echo") -> DeploymentKey:
    return DeploymentKey(APPLICATION, DeploymentName(name))


def views_of(
    state: MeshState, routes: HttpRoutes, infos: Infos
) -> dict[DeploymentKey, mesh_pb2.DeploymentView]:
    """Return all that routers are told, as somebody who looks for the first time."""
    views: dict[DeploymentKey, mesh_pb2.DeploymentView] = {}
    for (deployment, replica_id), message in News(state).since_last(routes, infos).items():
        if isinstance(message, mesh_pb2.DeploymentView):
            views[deployment] = message
        elif isinstance(message, mesh_pb2.ReplicaView):
            assert replica_id == message.replica_id
            views[deployment].replicas.append(message)
    return views


class World:
    """Carries actions out at once: a start makes a replica, a kill removes it."""

    def __init__(self) -> None:
        self.state = MeshState()
        self.now = 1000.0
        self.starts_max = 1_000_000
        self.log: list[Action] = []
        self.calls: dict[str, set[str]] = {}
        self.before_action: Callable[[Action], None] = lambda action: None
        self._ids = itertools.count(1)
        self._versions = itertools.count(1)

    def deploy(self, **options_by_name: object) -> dict[str, str]:
        """Deploy the application; values are replica counts or option dicts."""
        targets = {}
        for name, given in options_by_name.items():
            values = given if isinstance(given, dict) else {"num_replicas": given}
            version = Version(f"v{next(self._versions)}", DeploymentOptions.of(values))
            version.calls = frozenset(map(key, self.calls.get(name, ())))
            targets[key(name)] = version
        self.state.on_deploy(APPLICATION, targets)
        return {item.deployment: version.id for item, version in targets.items()}

    def scale(self, count: int, name: str = "Echo") -> None:
        """Give the deployment that serves another number of replicas."""
        target = self.state.deployments[key(name)].target
        assert target is not None
        self.state.on_limits(key(name), replace(target.options, num_replicas=count))

    def wanted(self) -> list[Action]:
        """Return what reconcile says now, with all starts."""
        return reconcile(self.state.deployments, self.state.replicas, self.now)

    def settle(self) -> list[Action]:
        """Let reconcile speak until it is silent; return what it said."""
        said: list[Action] = []
        for _ in range(_ROUNDS_MAX):
            actions = limit_starts(self.wanted(), self.state.replicas, self.starts_max)
            if not actions:
                self.log += said
                return said
            for action in actions:
                self.before_action(action)
                self._carry_out(action)
            said += actions
        raise AssertionError(f"reconcile does not come to rest: {said[-5:]}")

    def advance(self) -> float | None:
        """Go to the next wake-up, if there is one, and settle; return its time."""
        due = next_wakeup(self.state.deployments, self.state.replicas, self.now)
        if due is not None:
            self.now = due
            self.settle()
        return due

    def behave(self) -> None:
        """Let every replica start and end as it should, until nothing is left to do."""
        for _ in range(50):
            self.settle()
            self.make_ready()
            self.settle()
            self.end_stopped()
            if self.advance() is None:
                break

    def replicas(self, name: str = "Echo", phase: Phase | None = None) -> list[Replica]:
        return [
            item
            for item in self.state.of_deployment(key(name))
            if phase is None or item.phase is phase
        ]

    def serving(self, name: str = "Echo", version: str | None = None) -> list[Replica]:
        return [
            item for item in self.replicas(name) if item.serves and version in (None, item.version)
        ]

    def make_ready(self, *replicas: Replica) -> None:
        for replica in replicas or self.replicas(phase=Phase.STARTING):
            self.state.on_joined(replica.id, pid=1, place=Place(node="here"))
            place = Place(node="here", address=f"127.0.0.1:{len(replica.id)}")
            self.state.on_ready(replica.id, place=place, now=self.now)

    def fail(self, *replicas: Replica, failure: Failure = USER_ERROR) -> None:
        for replica in replicas:
            self.state.on_failed(replica.id, failure=failure, now=self.now)
            self.state.on_exited(replica.id, summary="ended with exit code 1", now=self.now)

    def die(self, *replicas: Replica) -> None:
        for replica in replicas:
            if replica.joined:
                self.state.on_left(replica.id, now=self.now)
            self.state.on_exited(replica.id, summary="was killed by SIGKILL", now=self.now)

    def end_stopped(self) -> None:
        """Every replica that was told to drain ends."""
        for replica in self.replicas_stopping():
            self.die(replica)

    def replicas_stopping(self) -> list[Replica]:
        return [item for item in self.state.replicas.values() if item.phase is Phase.STOPPING]

    def _carry_out(self, action: Action) -> None:
        match action:
            case StartReplica(deployment, version_id, slot):
                version = self.state.version_of(deployment, version_id)
                assert version is not None
                name = ReplicaId(f"{deployment.deployment}#{next(self._ids)}")
                replica = Replica(name, deployment, version_id, version.options, slot, self.now)
                replica.calls = version.calls
                self.state.on_start(replica)
            case StopReplica(replica_id, grace_s, reason):
                self._on_end(replica_id, reason)
                self.state.on_stop(replica_id, grace_s=grace_s, now=self.now)
            case KillReplica(replica_id, reason, failure):
                self._on_end(replica_id, reason)
                self.state.on_kill(replica_id, failure=failure, now=self.now)
                self.state.on_exited(replica_id, summary="was killed by SIGKILL", now=self.now)
            case FailVersion(deployment, failure):
                self.state.on_version_failed(deployment, failure)
            case CompleteVersion(deployment):
                self.state.on_version_completed(deployment)
            case ForgetDeployment(deployment):
                self.state.on_forget(deployment)

    def _on_end(self, replica_id: ReplicaId, reason: str) -> None:
        if reason != NOT_NEEDED and self.state.replicas[replica_id].phase is Phase.RUNNING:
            self.state.on_replaced(replica_id, reason, self.now)
