"""The one runtime of local testing mode in this process: made by the first ``run``."""

from __future__ import annotations

import atexit
import concurrent.futures
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pyserve.api.context import attach_local, attached, attachment, local_attachment
from pyserve.bridge import check_not_forked
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
    from pyserve.driver.local.mesh import LocalApplication
    from pyserve.driver.local.replica import LocalReplica

Result = TypeVar("Result")


class LocalRuntime:
    """A ``LocalMesh`` on a loop in a daemon thread of its own; to be used from other threads.

    Attributes:
        mesh: What handles see.
    """

    def __init__(self, mesh: LocalMesh) -> None:
        self.mesh = mesh
        # Threads of user code are not waited for: they may take however long they like.
        self._thread = LoopThread("pyserve-local", waits_for_threads=False)

    def close(self) -> None:
        """Drain and end all applications, and the thread. Idempotent."""
        if self._thread.is_running:
            self.wait(self.mesh.delete_all())
            self._thread.close()
        self.mesh.close()

    def wait(self, step: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Do a step on the loop of the applications, and return its result.

        Raises:
            RuntimeForked: This process is a fork of that which has the loop.
            TimeoutError: It took longer than ``timeout_s``; it is cancelled.
            UsageError: This is the loop's own thread, or the loop has ended.
            Exception: Whatever the step raises.
        """
        if not self._thread.is_running:
            step.close()
            attached()  # Says that this is a fork, if it is one.
            raise UsageError("local testing mode has been shut down")
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
    """Return the runtime of this process; make it if need be.

    Raises:
        RuntimeError: The process is a fork of one that has made servers or channels.
    """
    runtime = find_local()
    if runtime is None:
        check_not_forked()
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
