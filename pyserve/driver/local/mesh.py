"""The applications of local testing mode, and what their handles see instead of a mesh."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyserve.api.handles.loops import CallsLoop
from pyserve.control.state.specs import changes_limits_only
from pyserve.driver.client import spec_of
from pyserve.driver.local.calls import LocalCaller
from pyserve.driver.local.replica import LocalReplica
from pyserve.errors import DeploymentFailed, MeshNotFound, UsageError
from pyserve.references import References
from pyserve.replica.loading import LoadError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName

if TYPE_CHECKING:
    import grpc.aio

    from pyserve.api.context import Mesh
    from pyserve.api.graph import PackedApplication
    from pyserve.api.handles.calls import Caller


@dataclass(frozen=True)
class LocalApplication:
    """One application that runs.

    Attributes:
        name: Its name.
        ingress: The deployment that ``run`` returned a handle of.
        replicas: By deployment; callees before their callers.
        packed: What it was made from.
        deployed_at: Unix time, in seconds.
    """

    name: ApplicationName
    ingress: DeploymentName
    replicas: Mapping[DeploymentName, LocalReplica]
    packed: PackedApplication
    deployed_at: float = field(default_factory=time.time)

    async def reconfigure(self, packed: PackedApplication) -> None:
        """Give the instances the ``user_config`` of ``packed``, where it is another one.

        Raises:
            DeploymentFailed: One refuses it.
        """
        for deployment, former in zip(packed.deployments, self.packed.deployments, strict=True):
            options = deployment.options
            if options.user_config_json == former.options.user_config_json:
                continue
            try:
                await self.replicas[deployment.name].reconfigure(options.user_config)
            except LoadError as error:
                raise DeploymentFailed(deployment.name, error.summary, error.traceback) from error

    async def close(self) -> None:
        """End callers before those they call."""
        for replica in reversed([*self.replicas.values()]):
            await replica.close()


class LocalMesh:
    """Runs applications on one event loop; handles of any thread find them here.

    Args:
        outer: Returns the mesh that this process is in besides; its applications stay reachable.

    Attributes:
        applications: Those that run, by name.
        references: The values that they hold.
    """

    def __init__(self, outer: Callable[[], Mesh | None]) -> None:
        self.applications: dict[ApplicationName, LocalApplication] = {}
        self.references = References(node="", token=b"", holder_id="local", listens=False)
        self._outer = outer
        # While they come up; their replicas may call those that have.
        self._starting: dict[ApplicationName, LocalApplication] = {}
        self._callers: dict[DeploymentKey, LocalCaller] = {}
        self._calls_loop = CallsLoop("pyserve-local-calls")

    # --- what handles use -------------------------------------------------------------------

    def caller(self, key: DeploymentKey) -> Caller:
        """Return what makes the calls to one deployment.

        Raises:
            MeshNotFound: No application of that name runs here.
        """
        outer = self._outer()
        if key.application in self.applications or key.application in self._starting:
            # Two threads may make one each; either will do.
            return self._callers.setdefault(key, LocalCaller(key, lambda: self.find(key)))
        if outer is not None:
            return outer.caller(key)
        running = ", ".join(self.applications) or "none"
        raise MeshNotFound(
            f"no application {key.application!r} runs in local testing mode ({running} does); "
            f"keep the handle no longer than its application, or run it again"
        )

    def prepare(self) -> None:
        """Do nothing: without a mesh there is no view to wait for."""

    def calls_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for calls from threads without a running loop."""
        return self._calls_loop.get()

    def open_channel(self, key: DeploymentKey) -> grpc.aio.Channel:
        """Refuse: a local application listens on no socket.

        Raises:
            UsageError: Always, for an application of local testing mode.
        """
        outer = self._outer()
        if outer is not None and key.application not in self.applications:
            return outer.open_channel(key)
        raise UsageError(
            f"{key} runs in local testing mode, where no channel leads to; call it with "
            f"handle.method.remote(...), or run it without local_testing_mode"
        )

    def find(self, key: DeploymentKey) -> LocalReplica | None:
        """Return what serves a deployment now."""
        for applications in (self.applications, self._starting):
            application = applications.get(key.application)
            if application is not None and key.deployment in application.replicas:
                return application.replicas[key.deployment]
        return None

    def close(self) -> None:
        """End the loop for calls and free what is held. Idempotent.

        To be called when the applications have ended.
        """
        self._calls_loop.close()
        self.references.close()

    # --- on the loop of the applications ----------------------------------------------------

    async def deploy(self, packed: PackedApplication) -> None:
        """Bring an application up, then put it in the place of an older one, which drains.

        One that differs in its ``user_config`` only keeps its instances.

        Raises:
            DeploymentFailed: User code cannot be loaded, or raised.
        """
        running = self.applications.get(packed.name)
        if running is not None and _changes_config_only(running.packed, packed):
            await self._reconfigure(running, packed)
        else:
            await self._replace(packed)

    async def _reconfigure(self, running: LocalApplication, packed: PackedApplication) -> None:
        changed = replace(running, packed=packed, deployed_at=time.time())
        try:
            await running.reconfigure(packed)
        except DeploymentFailed:
            try:
                await changed.reconfigure(running.packed)
            except DeploymentFailed:  # Nobody knows what it has now.
                await self._replace(running.packed)
            raise
        self.applications[packed.name] = changed

    async def _replace(self, packed: PackedApplication) -> None:
        replicas: dict[DeploymentName, LocalReplica] = {}
        application = LocalApplication(packed.name, packed.ingress, replicas, packed)
        self._starting[packed.name] = application
        try:
            for deployment in packed.deployments:
                spec = spec_of(packed, deployment)
                replicas[deployment.name] = await LocalReplica.start(spec, self.references)
        except LoadError as error:
            await application.close()
            trace = error.traceback or traceback.format_exc()
            raise DeploymentFailed(deployment.name, error.summary, trace) from error
        except BaseException:  # It took too long, and nobody waits any more.
            await application.close()
            raise
        finally:
            self._starting.pop(packed.name, None)
        previous = self.applications.get(packed.name)
        self.applications[packed.name] = application
        if previous is not None:
            await previous.close()

    async def delete(self, name: ApplicationName) -> None:
        """Drain and end one application.

        Raises:
            MeshNotFound: It does not run here.
        """
        application = self.applications.pop(name, None)
        if application is None:
            raise MeshNotFound(f"no application {name!r} runs in local testing mode")
        await application.close()

    async def delete_all(self) -> None:
        """Drain and end all applications."""
        for name in tuple(self.applications):
            await self.delete(name)


def _changes_config_only(before: PackedApplication, after: PackedApplication) -> bool:
    """Say whether instances can take on what was deployed, as replicas of a mesh do."""
    specs = [
        {DeploymentKey(each.name, item.name): spec_of(each, item) for item in each.deployments}
        for each in (before, after)
    ]
    alike = [
        [item.options.updated({"user_config": None}) for item in each.deployments]
        for each in (before, after)
    ]
    return alike[0] == alike[1] and changes_limits_only(*specs)
