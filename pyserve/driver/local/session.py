"""The one runtime of local testing mode in this process: made by the first ``run``."""

from __future__ import annotations

import atexit
import concurrent.futures
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pyserve.api.context import attach_local, attachment, local_attachment
from pyserve.driver.local.mesh import LocalMesh
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
from pyserve.errors import UsageError
from pyserve.loop_thread import LoopThread
from pyserve.version import version

if TYPE_CHECKING:
    from pyserve.api.graph import PackedApplication
    from pyserve.driver.local.mesh import LocalApplication
    from pyserve.driver.local.replica import LocalReplica
    from pyserve.driver.local.server import LocalServer
    from pyserve.types import ApplicationName


# The thread and the loop that local testing mode runs its applications on.

Result = TypeVar("Result")


class LocalRuntime:
    """Runs a ``LocalMesh`` on a loop in a daemon thread of its own; its methods are for others.

    Attributes:
        mesh: What handles see.
    """

    def __init__(self, mesh: LocalMesh) -> None:
        self.mesh = mesh
        # Threads of user code are not waited for: they may take however long they like.
        self._thread = LoopThread("pyserve-local", waits_for_threads=False)

    def deploy(self, packed: PackedApplication, timeout_s: float | None = None) -> None:
        """Bring an application up; see ``LocalMesh.deploy``.

        Raises:
            DeploymentFailed: User code cannot be loaded, or raised.
            TimeoutError: It took longer than ``timeout_s``.
        """
        self._wait(self.mesh.deploy(packed), timeout_s)

    def delete(self, name: ApplicationName) -> None:
        """Drain and end one application.

        Raises:
            MeshNotFound: It does not run here.
        """
        self._wait(self.mesh.delete(name))

    def serve(self, name: ApplicationName, address: str) -> LocalServer:
        """Answer at an address what an application of this process answers; see ``serve``.

        Raises:
            DeploymentFailed: Its web application could not be started.
            UsageError: The address cannot be used.
        """
        # Others need no server.
        from pyserve.driver.local.server import serve

        return self._wait(serve(self.mesh.applications[name], [address]))

    def stop(self, server: LocalServer, grace_s: float) -> None:
        """End a server; what is in flight gets ``grace_s``."""
        self._wait(server.stop(grace_s))

    def close(self) -> None:
        """Drain and end all applications, and the thread. Idempotent."""
        if self._thread.is_running:
            self._wait(self.mesh.delete_all())
            self._thread.close()
        self.mesh.close()

    def _wait(self, step: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        if self._thread.is_current:
            step.close()
            raise UsageError(
                "a handler that is `async def` cannot wait for applications here, since they share "
                "its event loop; write `await asyncio.to_thread(pyserve.run, app)`, or `def`"
            )
        running = self._thread.run(step)
        try:
            return running.result(timeout_s)
        except concurrent.futures.TimeoutError:
            running.cancel()
            raise


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
