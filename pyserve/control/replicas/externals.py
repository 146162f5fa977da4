"""Deployments of replicas started outside the mesh. Pure; ``now`` is an argument.

Any replica that joins is a member. Its Hello says what it runs, and replicas that run the same are
one generation of their deployment. The generation whose first process started last is the target;
``reconcile`` lets the older ones drain when it has as many replicas that serve. A generation
without replicas is forgotten, so that the same code counts as new when it comes again; a deployment
without replicas stays for a moment, in which calls wait for a replica that restarts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pyserve.config import DeploymentOptions, check_name
from pyserve.config.control import REJOIN_TIMEOUT_S
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica, Version
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2, mesh_pb2

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
