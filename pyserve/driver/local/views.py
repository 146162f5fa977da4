"""The views of the deployments in this process, which no controller sends to its routers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from pyserve.routing.watcher import OnView, ViewState, Watch, Watching
from pyserve.types import ApplicationName, DeploymentKey, MeshAddress
from pyserve.wire.v1 import mesh_pb2


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
