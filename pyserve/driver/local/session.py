"""The one runtime of local testing mode in this process: made by the first ``run``."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from pyserve.api.context import attach_local, attachment, local_attachment
from pyserve.driver.local.mesh import LocalMesh
from pyserve.driver.local.runtime import LocalRuntime
from pyserve.driver.status import (
    ApplicationStatus,
    ApplicationStatusOverview,
    DeploymentStatus,
    DeploymentStatusOverview,
    DeploymentStatusTrigger,
    IngressStatus,
    MeshStatus,
    ReplicaStatus,
)
from pyserve.version import version

if TYPE_CHECKING:
    from pyserve.driver.local.mesh import LocalApplication
    from pyserve.driver.local.replica import LocalReplica


class _AttachedMesh(LocalMesh):
    """What handles see, and the runtime behind it."""

    runtime: LocalRuntime


def find_local() -> LocalRuntime | None:
    """Return the runtime of this process, if there is one."""
    mesh = local_attachment()
    return mesh.runtime if isinstance(mesh, _AttachedMesh) else None


def open_local() -> LocalRuntime:
    """Return the runtime of this process; make it if need be."""
    runtime = find_local()
    if runtime is None:
        mesh = _AttachedMesh(attachment)
        runtime = mesh.runtime = LocalRuntime(mesh)
        attach_local(mesh)
        atexit.register(end_local)
    return runtime


def end_local() -> None:
    """Drain and end what runs in this process, if anything does."""
    atexit.unregister(end_local)
    runtime = find_local()
    if runtime is not None:
        try:
            runtime.close()
        finally:
            attach_local(None)


def local_status(mesh: LocalMesh) -> MeshStatus:
    """Return what runs in this process, in the form of a mesh."""
    return MeshStatus(
        version=version(),
        controller_pid=os.getpid(),
        addresses=(),
        applications={name: _application(each) for name, each in mesh.applications.items()},
        ingress=IngressStatus(in_flight=0, parked=0, in_flight_of_replica={}),
    )


def _application(application: LocalApplication) -> ApplicationStatusOverview:
    found = [_deployment(replica) for replica in application.replicas.values()]
    return ApplicationStatusOverview(
        name=application.name,
        route_prefix="",
        deployments={each.name: each for each in found},
        ingress_deployment=application.ingress,
        status=ApplicationStatus.RUNNING,
        message="",
        last_deployed_time_s=application.deployed_at,
    )


def _deployment(replica: LocalReplica) -> DeploymentStatusOverview:
    context = replica.context
    only = ReplicaStatus(context.replica_id, "RUNNING", os.getpid(), "", "")
    return DeploymentStatusOverview(
        name=context.deployment,
        status=DeploymentStatus.HEALTHY,
        message="in this process",
        wanted=1,
        replicas=(only,),
        services=tuple(service.name for service in replica.loaded.services),
        status_trigger=DeploymentStatusTrigger.CONFIG_UPDATE_COMPLETED,
    )
