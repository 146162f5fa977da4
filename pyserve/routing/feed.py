"""Feeds a routing table from a controller: for an ingress, and for channels inside a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from pyserve.aio import Channel
from pyserve.aio.mesh_channel import dial
from pyserve.bridge import rust
from pyserve.config import NodeSettings, RouterDefaults
from pyserve.config.routing import read_router_defaults
from pyserve.pace import Pace
from pyserve.routing.late import LatePolicies
from pyserve.routing.load_reports import LoadPublisher
from pyserve.routing.policies import Policies
from pyserve.routing.routes import route_of
from pyserve.routing.watcher import Views, ViewState, Watcher, Way
from pyserve.types import DeploymentKey, MeshAddress

_LATE_LOOK_INTERVAL_S = 1.0
# For a process that has calls to forward. Applying a table of hundreds of replicas takes less than
# the free milliseconds; one of thousands takes longer, and so waits to gather more changes.
_APPLY_SHARE, _APPLY_FREE_S, _APPLY_WAIT_MAX_S = 0.1, 0.02, 0.1


class Table(Protocol):
    """The part of ``rust.RoutingTable`` that a feed uses."""

    def apply(self, version: int, deployments: Sequence[rust.DeploymentRoute]) -> None:
        """Replace the table."""

    def unanswered(self) -> dict[str, int]:
        """Return how often the policy of each deployment did not answer in time."""

    def stats(self) -> dict[str, dict[str, object]]:
        """Return what each deployment's router has counted."""


class TableFeed:
    """Keeps a table equal to the controller's view, as long as it is open.

    Args:
        controller: whom to follow.
        node: where this process is.
        table: what to feed.
        deployments: what to follow; None: everything.
        extra_routes: called with each new view, before it is applied; the routes that it returns
            are applied too (what a process answers by itself).
        connect: makes the channel to the controller's address.
        defaults: of the routers, where a deployment does not say it.
        for_handles: take deployments of which no replica has been ready yet too, so that calls to
            them wait; what they serve is not known then.
        way: to the controllers that come after this one; ``None``: they have its address.
    """

    def __init__(
        self,
        controller: MeshAddress,
        node: NodeSettings,
        table: Table,
        deployments: Collection[DeploymentKey] | None,
        *,
        extra_routes: Callable[[Views], Sequence[rust.DeploymentRoute]] | None = None,
        connect: Callable[[str], Channel] = dial,
        defaults: RouterDefaults | None = None,
        for_handles: bool = False,
        way: Way | None = None,
    ) -> None:
        self._for_handles = for_handles
        self._defaults = defaults or read_router_defaults({})
        self._policies = Policies()
        self._table = table
        self._extra_routes = extra_routes
        # A restarted registry counts from the start; a table's version must only grow.
        self._table_version = 0
        self._view_version = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._watcher = Watcher(
            controller, node, deployments, self._on_view, connect=connect, way=way
        )
        self._load = LoadPublisher(lambda: self._watcher.controller, connect, table.stats)
        self._late = LatePolicies(table.unanswered)
        self._late_look: asyncio.Task[None] | None = None
        self._pace = Pace(_APPLY_SHARE, free_s=_APPLY_FREE_S, wait_max_s=_APPLY_WAIT_MAX_S)
        self._apply_later: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to follow; ``wait_version`` tells when there is something in the table."""
        self._watcher.start()

    async def wait_version(self, version: int = 1, *, timeout_s: float) -> None:
        """Wait until the table holds a version of the registry, or a later one.

        Args:
            version: 1 is any snapshot.
            timeout_s: seconds; ``TimeoutError`` when they have passed.
        """
        if self._view_version >= version:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = version
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def close(self) -> None:
        """Stop following; the table stays as it is. Idempotent."""
        await self._watcher.close()
        if self._apply_later is not None:
            self._apply_later.cancel()
        await self._load.close()
        if self._late_look is not None:
            self._late_look.cancel()
            await asyncio.wait({self._late_look})

    def _on_view(self, state: ViewState) -> None:
        """Apply the view: at once, unless many news of many replicas have to be gathered."""
        loop = asyncio.get_running_loop()
        if self._apply_later is not None:
            return
        if wait_s := self._pace.wait_s(loop.time()):
            self._apply_later = loop.call_later(wait_s, self._apply, state)
        else:
            self._apply(state)

    def _apply(self, state: ViewState) -> None:
        self._apply_later = None
        begun_cpu = time.thread_time()
        self._put(state)
        self._pace.spend(time.thread_time() - begun_cpu, asyncio.get_running_loop().time())

    def _put(self, state: ViewState) -> None:
        views = {
            key: view
            for key, view in state.views.items()
            # A view has no services and prefixes until a replica has been ready. Handles get a
            # route before that, so that their calls learn that no replica is ready.
            if view.services or view.http_prefixes or self._for_handles
        }
        routes = [route_of(view, self._defaults, self._policies) for view in views.values()]
        if self._extra_routes is not None:
            routes += self._extra_routes(views)
        self._table_version += 1
        self._table.apply(self._table_version, routes)
        self._load.follow(views)
        # Not earlier: until now calls used the previous table.
        self._policies.forget_unused()
        if self._policies and self._late_look is None:
            self._late_look = asyncio.create_task(self._look_for_late())
        self._view_version = state.version
        for waiter, version in self._waiters.items():
            if version <= state.version and not waiter.done():
                waiter.set_result(None)

    async def _look_for_late(self) -> None:
        """Say which policies are late, until cancelled."""
        while True:
            await asyncio.sleep(_LATE_LOOK_INTERVAL_S)
            self._late.look()
