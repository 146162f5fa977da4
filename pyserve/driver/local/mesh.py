"""The applications of local testing mode, and what their handles see instead of a mesh.

Views of the deployments in this process go to its routers, which no controller sends here.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyserve.config import read_settings
from pyserve.control.state.specs import changes_limits_only
from pyserve.driver.client import spec_of
from pyserve.driver.local.replica import LocalReplica, Place
from pyserve.errors import DeploymentFailed, MeshNotFound
from pyserve.replica.loading import LoadError
from pyserve.routing.in_process import InProcessRouter
from pyserve.routing.watcher import OnView, ViewState, Watch, Watching
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName, MeshAddress, ReplicaId
from pyserve.wire.v1 import mesh_pb2

if TYPE_CHECKING:
    import grpc.aio

    from pyserve.api.context import Mesh
    from pyserve.api.graph import PackedApplication
    from pyserve.api.handles.calls import Caller
    from pyserve.references import References


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


class LocalMesh:
    """Runs applications on one event loop; handles of any thread find them here.

    Args:
        outer: Returns the mesh that this process is in besides; its applications stay reachable.

    Attributes:
        applications: Those that run, by name.
        views: What routers are told of them.
        place: What their replicas have in common.
    """

    def __init__(self, outer: Callable[[], Mesh | None]) -> None:
        self.applications: dict[ApplicationName, LocalApplication] = {}
        self.views = LocalViews()
        self._outer = outer
        # With those that come up or drain, whose replicas may call each other.
        self._reachable: set[ApplicationName] = set()
        self._locks: dict[ApplicationName, asyncio.Lock] = {}
        self._started: Counter[str] = Counter()
        settings = read_settings()
        # Certificates of a mesh are for connections to other machines.
        settings = replace(settings, node=replace(settings.node, tls=None))
        token, self._pid = secrets.token_bytes(), os.getpid()
        folder = Path(tempfile.mkdtemp(prefix="pyserve-local-"))
        self._router = InProcessRouter(
            MeshAddress(controller="", token=token),
            settings.node,
            folder,
            settings.routing,
            watch=self.views.watch_of(None),
        )
        self.place = Place(
            settings=settings, folder=folder, token=token, references=self._router.references
        )

    # --- what handles use -------------------------------------------------------------------

    @property
    def references(self) -> References:
        """The values that this process holds, and its way to those of others."""
        return self._router.references

    def caller(self, key: DeploymentKey) -> Caller:
        """Return what makes the calls to one deployment.

        Raises:
            MeshNotFound: No application of that name runs here.
        """
        return self._mesh_of(key).caller(key)

    def open_channel(self, key: DeploymentKey) -> grpc.aio.Channel:
        """Return a channel to one deployment.

        Raises:
            MeshNotFound: No application of that name runs here.
        """
        return self._mesh_of(key).open_channel(key)

    def prepare(self) -> None:
        """Start what the first call of a handle will need."""
        self._router.prepare()

    def calls_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for calls from threads without a running loop."""
        return self._router.calls_loop()

    def close(self) -> None:
        """End the router, free what is held and remove the sockets. Idempotent.

        To be called when the applications have ended.
        """
        self._router.close()
        if os.getpid() == self._pid:  # In a fork they are those of its parent.
            shutil.rmtree(self.place.folder, ignore_errors=True)

    def _mesh_of(self, key: DeploymentKey) -> InProcessRouter | Mesh:
        if key.application in self._reachable:
            return self._router
        if (outer := self._outer()) is not None:
            return outer
        running = ", ".join(self.applications) or "none"
        raise MeshNotFound(
            f"no application {key.application!r} runs in local testing mode ({running} does); "
            f"keep the handle no longer than its application, or run it again"
        )

    # --- on the loop of the applications ----------------------------------------------------

    async def deploy(self, packed: PackedApplication) -> None:
        """Bring an application up, then put it in the place of an older one, which drains.

        One that differs in its ``user_config`` only keeps its instances.

        Raises:
            DeploymentFailed: User code cannot be loaded, or raised.
        """
        async with self._changing(packed.name):
            running = self.applications.get(packed.name)
            if running is not None and _changes_config_only(running.packed, packed):
                await self._reconfigure(running, packed)
            else:
                await self._replace(running, packed)

    async def delete(self, name: ApplicationName) -> None:
        """Drain and end one application.

        Raises:
            MeshNotFound: It does not run here.
        """
        async with self._changing(name):
            application = self.applications.pop(name, None)
            if application is None:
                raise MeshNotFound(f"no application {name!r} runs in local testing mode")
            await self._end(application, None)

    async def delete_all(self) -> None:
        """Drain and end all applications."""
        for name in tuple(self.applications):
            await self.delete(name)

    @asynccontextmanager
    async def _changing(self, name: ApplicationName) -> AsyncIterator[None]:
        """Let nobody else change an application meanwhile; its deployments can be called."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            self._reachable.add(name)
            try:
                yield
            finally:
                if name not in self.applications:
                    self._reachable.discard(name)

    async def _reconfigure(self, running: LocalApplication, packed: PackedApplication) -> None:
        changed = replace(running, packed=packed, deployed_at=time.time())
        try:
            await running.reconfigure(packed)
        except DeploymentFailed:
            try:
                await changed.reconfigure(running.packed)
            except DeploymentFailed:  # Nobody knows what it has now.
                await self._replace(running, running.packed)
            raise
        self.applications[packed.name] = changed

    async def _replace(self, former: LocalApplication | None, packed: PackedApplication) -> None:
        replicas: dict[DeploymentName, LocalReplica] = {}
        application = LocalApplication(packed.name, packed.ingress, replicas, packed)
        try:
            for deployment in packed.deployments:
                replica = await self._start(spec_of(packed, deployment))
                replicas[deployment.name] = replica
                # Where there is a former one, it answers until all have come up.
                if former is None or deployment.name not in former.replicas:
                    await self._show(replica)
        except BaseException as error:  # Where it took too long, a cancellation.
            await self._end(application, former)
            if not isinstance(error, LoadError):
                raise
            raise DeploymentFailed(deployment.name, error.summary, error.traceback) from error
        self.applications[packed.name] = application
        if former is not None:
            await self._show(*replicas.values())
            await self._end(former, application)

    async def _start(self, spec: mesh_pb2.DeploymentSpec) -> LocalReplica:
        # Routers must not take it for the former one.
        name = f"{spec.application}/{spec.name}"
        self._started[name] += 1
        number = "" if self._started[name] == 1 else f"-{self._started[name]}"
        replica_id = ReplicaId(f"{spec.name}#local{number}")
        return await LocalReplica.start(spec, replica_id, self.place)

    async def _show(self, *replicas: LocalReplica) -> None:
        """Let routers send calls to replicas; return when handles do."""
        version = self.views.show({each.key: each.view for each in replicas})
        # On a thread, because the making of a user's policy is waited for.
        await asyncio.to_thread(self._router.await_view, version)

    async def _end(self, application: LocalApplication, remaining: LocalApplication | None) -> None:
        """End the replicas of an application, callers before those they call.

        Args:
            application: Which one.
            remaining: What answers in its place.
        """
        for name, replica in reversed([*application.replicas.items()]):
            if remaining is None or name not in remaining.replicas:
                self.views.show({replica.key: None})
            await replica.close()


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


class LocalViews:
    """The present views, changed on one loop and followed on any.

    Attributes:
        state: All of them; each change puts another object here.
    """

    def __init__(self) -> None:
        self.state = ViewState()
        # The mesh without applications is a view too: routers wait for a first one.
        self.state.version = 1
        self._watchers: set[_LocalWatcher] = set()

    def show(self, changes: Mapping[DeploymentKey, mesh_pb2.DeploymentView | None]) -> int:
        """Put views in place of the former ones, ``None``: there is none; return the version."""
        changed = ViewState()
        changed.version = self.state.version + 1
        views = {**self.state.views, **changes}
        changed.views = {key: view for key, view in views.items() if view is not None}
        self.state = changed
        for watcher in tuple(self._watchers):
            watcher.wake()
        return changed.version

    def watch_of(self, application: ApplicationName | None = None) -> Watch:
        """Return what makes watchers of one application, or of all."""
        return partial(_LocalWatcher, self, application)

    def add(self, watcher: _LocalWatcher) -> None:
        """Wake a watcher when the views have changed; before its first look, on any thread."""
        self._watchers.add(watcher)

    def remove(self, watcher: _LocalWatcher) -> None:
        """Wake it no more. Idempotent."""
        self._watchers.discard(watcher)


class _LocalWatcher(Watching):
    """One router's watch."""

    def __init__(
        self, views: LocalViews, application: ApplicationName | None, on_view: OnView
    ) -> None:
        self._views = views
        self._application = application
        self._on_view = on_view
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def controller(self) -> MeshAddress:
        return MeshAddress(controller="", token=b"")

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._views.add(self)
        self._look()

    def wake(self) -> None:
        """Look at the views soon; from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._look)

    async def close(self) -> None:
        self._views.remove(self)
        self._loop = None

    def _look(self) -> None:
        if self._loop is None:
            return
        found, state = self._views.state, ViewState()
        state.version = found.version
        state.views = {
            key: view
            for key, view in found.views.items()
            if self._application in (None, key.application)
        }
        self._on_view(state)
