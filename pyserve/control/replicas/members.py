"""The replicas that have joined, also those from outside the mesh: their messages and sessions.

Any replica that joins is a member, also one that was started outside the mesh. Its Hello says what
it runs, and such replicas that run the same are one generation of their deployment. The generation
whose first process started last is the target; ``reconcile`` lets the older ones drain when it has
as many replicas that serve. A generation without replicas is forgotten, so that the same code
counts as new when it comes again; a deployment without replicas stays for a moment, in which calls
wait for a replica that restarts.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyserve.config import DeploymentOptions, check_name
from pyserve.config.control import REJOIN_TIMEOUT_S
from pyserve.control.reconcile.rollout import on_reconfigured
from pyserve.control.replicas.identity import (
    Ranks,
    gang_message,
    learn_services,
    new_replica,
    place_of,
    ready_place,
)
from pyserve.control.replicas.output import Output
from pyserve.control.replicas.sessions import Session
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.engines import shared_names
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica, Version
from pyserve.control.state.replica import EXTERNAL_SLOT, Failure
from pyserve.errors import MeshNotFound
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, ReplicaId
from pyserve.wire.v1 import control_pb2, mesh_pb2

_LOGGER = logging.getLogger(__name__)


class Members(Mapping[ReplicaId, Session]):
    """The sessions of replicas, by their names.

    Args:
        state: gets their messages.
        specs: what replicas run, by the ids of versions; unused ones are dropped.
        applications: gets those of external replicas.
        output: keeps the reason why one could not come up, among its last lines.
        development: whether the texts of exceptions may reach clients.
    """

    def __init__(
        self,
        state: MeshState,
        specs: dict[str, mesh_pb2.DeploymentSpec],
        applications: Applications,
        output: Output,
        *,
        development: bool,
    ) -> None:
        self._state = state
        self._specs = specs
        self._externals = Externals(state, applications, specs)
        self._output = output
        self._ranks = Ranks(state)
        self._development = development
        self._sessions: dict[ReplicaId, Session] = {}
        self._closes_web_sockets = False

    def __getitem__(self, replica_id: ReplicaId) -> Session:
        return self._sessions[replica_id]

    def __iter__(self) -> Iterator[ReplicaId]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def join(self, hello: mesh_pb2.Hello, now: float) -> Session:
        """Take a replica in, and queue its Assign.

        Raises:
            MeshNotFound: its deployment does not exist, or it is not wanted any more.
            UsageError: it is external, and what it runs is refused.
        """
        external = self._externals.admit(hello)
        key = DeploymentKey(ApplicationName(hello.application), DeploymentName(hello.deployment))
        replica = self._state.replicas.get(ReplicaId(hello.replica_id))
        if replica is None:
            replica = self._adopt(key, hello, now, external)
        spec = self._specs.get(replica.version)
        if spec is None:
            raise MeshNotFound(f"the version that replica {replica.id} runs is gone")
        place = replica.place if replica.place.address else place_of(hello, replica.place)
        self._state.on_joined(replica.id, pid=hello.pid, place=place)
        replica.admin, replica.release = hello.admin, hello.version
        replica.clock_ahead_s = hello.now - time.time() if hello.now else 0.0
        session = Session(replica.id)
        former = self._sessions.pop(replica.id, None)
        if former is not None:
            former.end()
        self._sessions[replica.id] = session
        rank = self._ranks.give(replica)
        assign = mesh_pb2.Assign(
            replica_id=replica.id,
            spec=spec,
            deployment_version=replica.version,
            development=self._development,
            config=self._config_of(replica),
            rank=mesh_pb2.Rank(
                rank=rank.rank, node_rank=rank.node_rank, local_rank=rank.local_rank
            ),
            world_size=self._ranks.world_size(replica),
            zone=place.zone,
            gang=gang_message(replica, self._state.replicas),
        )
        session.send(mesh_pb2.ReplicaCommand(assign=assign))
        if replica.phase is Phase.RUNNING:
            # It has read an Assign before, and may have missed what came since.
            self.tell_limits([replica], replica.options)
        return session

    def tell_limits(self, replicas: Iterable[Replica], options: DeploymentOptions) -> None:
        """Send replicas of one version that have joined what they may take on, and their number."""
        options_json = options.to_json()
        for replica in replicas:
            if replica.id in self._sessions:
                limits = mesh_pb2.Limits(
                    max_ongoing_requests=options.ongoing_requests_limit(),
                    world_size=self._ranks.world_size(replica),
                    options_json=options_json,
                )
                self._sessions[replica.id].send(mesh_pb2.ReplicaCommand(limits=limits))

    def close_web_sockets(self) -> None:
        """Have all WebSockets closed, also those of replicas that are ready later; calls go on."""
        self._closes_web_sockets = True
        for replica_id, session in self._sessions.items():
            replica = self._state.replicas.get(replica_id)
            if replica is not None and replica.phase is Phase.RUNNING:
                session.send(_close_web_sockets())

    def hear(self, session: Session, message: mesh_pb2.ReplicaMessage, now: float) -> bool:
        """Take one message of a replica; return whether it is still this replica's session."""
        replica = self._state.replicas.get(session.replica_id)
        if replica is None or self._sessions.get(session.replica_id) is not session:
            return False
        match message.WhichOneof("kind"):
            case "ready":
                self._on_ready(replica, message.ready, now)
                if self._closes_web_sockets:
                    session.send(_close_web_sockets())
            case "failed":
                failure = Failure(
                    message.failed.summary, message.failed.traceback, message.failed.user_code
                )
                text = f"{failure.summary}\n{failure.traceback}"
                self._output.add_text(replica.key, replica.id, text)
                self._state.on_failed(replica.id, failure=failure, now=now)
            case "health":
                healthy, reason = message.health.healthy, message.health.reason
                self._state.on_health(replica.id, healthy=healthy, now=now, reason=reason)
            case "routing_stats":
                replica.routing_stats_json = message.routing_stats.json
            case "reconfigured":
                on_reconfigured(replica, message.reconfigured)
            case "pong":
                self._state.on_heard(replica.id)
            case "draining":
                grace_s = replica.options.graceful_shutdown_timeout_s
                # It says so again when it has joined once more, or is told to drain meanwhile.
                replica.stops_itself |= replica.phase is not Phase.STOPPING
                self._state.on_draining(replica.id, grace_s=grace_s, now=now)
            case _:
                _LOGGER.warning("replica %s sent a message of no known kind", replica.id)
        return True

    def _config_of(self, replica: Replica) -> int:
        replica.config_told, replica.refusal = 0, None
        version = self._state.version_of(replica.key, replica.version)
        return 0 if version is None else version.config

    def end(self, replica_id: ReplicaId) -> None:
        """End the stream of a replica, if it has one."""
        if replica_id in self._sessions:
            self._sessions[replica_id].end()

    def leave(self, session: Session, now: float) -> bool:
        """Forget a session whose stream has ended; return whether no other had replaced it."""
        if self._sessions.get(session.replica_id) is not session:
            return False
        del self._sessions[session.replica_id]
        replica = self._state.replicas.get(session.replica_id)
        if replica is not None:
            self._state.on_left(replica.id, now=now)
            self._externals.on_left(replica, now)
        return True

    def _on_ready(self, replica: Replica, ready: mesh_pb2.Ready, now: float) -> None:
        place, metadata = ready_place(replica, ready), ready.replica_metadata_json
        replica.config = ready.config
        self._state.on_ready(replica.id, place=place, now=now, metadata_json=metadata)
        desired = self._state.deployments.get(replica.key)
        if desired is not None:
            target = desired.target
            if not desired.services or (target and target.id == replica.version):
                known = desired.engine_models
                learn_services(desired, ready, unix_now=time.time())
                if desired.engine_models != known:
                    self._warn_of_doubles(desired)

    def _warn_of_doubles(self, desired: Desired) -> None:
        """Log names of models that another deployment of the application has too."""
        for other in self._state.of_application(desired.key.application):
            if names := shared_names(desired, other):
                _LOGGER.warning(
                    "%s and %s both have models that are named %s; clients who name one get that "
                    "of the deployment whose name sorts first. Give them different ids or aliases",
                    desired.key,
                    other.key,
                    ", ".join(names),
                )

    def _adopt(
        self, key: DeploymentKey, hello: mesh_pb2.Hello, now: float, version: Version | None
    ) -> Replica:
        """Add a replica that was started outside the mesh."""
        desired = self._state.deployments.get(key)
        version = version or (desired.target if desired is not None else None)
        if version is None:
            raise MeshNotFound(f"there is no deployment {key}; deploy the application first")
        taken = self._state.replicas
        replica = new_replica(key, version, EXTERNAL_SLOT, now, taken, name=hello.replica_id)
        self._state.on_external(replica)
        return replica


def _close_web_sockets() -> mesh_pb2.ReplicaCommand:
    return mesh_pb2.ReplicaCommand(close_web_sockets=mesh_pb2.CloseWebSockets())


_DIGEST_LENGTH = 12


@dataclass(slots=True)
class _Generation:
    version: Version
    started_at: float


class Externals:
    """All deployments of this kind.

    Args:
        state: gets their deployments.
        applications: gets their applications.
        specs: gets what they run, by the ids of versions.
    """

    def __init__(
        self,
        state: MeshState,
        applications: Applications,
        specs: dict[str, mesh_pb2.DeploymentSpec],
    ) -> None:
        self._state = state
        self._applications = applications
        self._specs = specs
        # By the ids of their versions.
        self._generations: dict[DeploymentKey, dict[str, _Generation]] = {}

    def admit(self, hello: mesh_pb2.Hello) -> Version | None:
        """Take in a replica's description of what it runs.

        Returns:
            Its version; ``None``: it is not an external replica.

        Raises:
            UsageError: the mesh has deployed an application of that name itself; a name, an option
                or the prefix is not allowed.
        """
        if not hello.HasField("external"):
            return None
        application = ApplicationName(check_name("application", hello.application))
        name = DeploymentName(check_name("deployment name", hello.deployment))
        key, external = DeploymentKey(application, name), hello.external
        info = self._info(application, external)
        self._forget_gone(key)
        version_id = _digest(key, external.spec)
        found = self._generations.get(key, {}).get(version_id)
        if found is None:
            options = DeploymentOptions.from_peer(external.spec.options_json)
            self._applications.infos[application] = info
            whole = self._specs[version_id] = mesh_pb2.DeploymentSpec()
            whole.CopyFrom(external.spec)
            whole.application = application
            sys_path = tuple(external.spec.code.sys_path)
            version = Version(version_id, options, proven=True, completed=True, sys_path=sys_path)
            version.is_external = True
            found = _Generation(version, external.started_at)
            self._generations.setdefault(key, {})[version_id] = found
        found.started_at = min(found.started_at, external.started_at)
        self._aim(key)
        return found.version

    def on_left(self, replica: Replica, now: float) -> None:
        """Remove an external replica that has gone from the state."""
        desired = self._state.deployments.get(replica.key)
        generations = self._generations.get(replica.key)
        if generations is None or desired is None or desired.target is None:
            return
        if self._state.replicas.of(replica.key):
            if not self._state.replicas.has_version(replica.key, replica.version):
                generations.pop(replica.version, None)
            self._aim(replica.key)
        else:
            has_said_so = replica.phase is Phase.STOPPING
            desired.forget_at = now if has_said_so else now + REJOIN_TIMEOUT_S

    def _forget_gone(self, key: DeploymentKey) -> None:
        """Forget a deployment that has ended, or is ending."""
        desired = self._state.deployments.get(key)
        if desired is None or desired.target is None:
            self._generations.pop(key, None)

    def _aim(self, key: DeploymentKey) -> None:
        generations = self._generations[key].values()
        newest = max(generations, key=lambda each: each.started_at).version
        desired = self._state.deployments.setdefault(key, Desired(key=key, target=newest))
        desired.target, desired.forget_at = newest, None

    def _info(self, name: ApplicationName, external: mesh_pb2.External) -> ApplicationInfo:
        request = control_pb2.DeployRequest(
            application=name,
            ingress_deployment=external.ingress_deployment,
            route_prefix=external.route_prefix,
            route_prefix_is_default=external.route_prefix_is_default,
        )
        info = self._applications.check(name, request, self._state, is_external=True)
        former = self._applications.infos.get(name)
        deployed_at = 0.0 if former is None else former.deployed_at
        return replace(info, deployed_at=max(deployed_at, external.started_at))


def _digest(key: DeploymentKey, spec: mesh_pb2.DeploymentSpec) -> str:
    """Return what distinguishes generations: everything except the machine's folders."""
    rest = mesh_pb2.DeploymentSpec()
    rest.CopyFrom(spec)
    del rest.code.sys_path[:]
    rest.code.working_directory = ""
    digest = hashlib.sha256(f"{key}\n".encode() + rest.SerializeToString(deterministic=True))
    return f"{digest.hexdigest()[:_DIGEST_LENGTH]}.external"
