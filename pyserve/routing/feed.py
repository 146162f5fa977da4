"""Feeds a routing table from a controller, and reports waiting calls to it.

Views of the mesh are turned into what the native routing table takes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from google.protobuf import descriptor_pb2

from pyserve.aio import AioRpcError, Channel
from pyserve.aio.mesh_channel import Redial, dial, proof
from pyserve.bridge import rust
from pyserve.config import DEFAULT_POLICY, NodeSettings, RouterDefaults
from pyserve.config.routing import OPTIONS, POLICIES, read_router_defaults
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.pace import Pace
from pyserve.routing.policies import Policies
from pyserve.routing.watcher import Views, ViewState, Watch, Watcher, Way
from pyserve.types import DeploymentKey, MeshAddress
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc

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
        watch: makes what gets the views; ``None``: the controller sends them.
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
        watch: Watch | None = None,
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
        if watch is None:
            watch = partial(Watcher, controller, node, deployments, connect=connect, way=way)
        self._watcher = watch(self._on_view)
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
        # What owns this feed may own native threads, which must not wait for the garbage collector.
        self._extra_routes = None
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


# Says which deployments' policies do not answer their routers in time.
#
# A policy that hangs says nothing itself, and its thread neither; the routers count.

_LOGGER = logging.getLogger(__name__)


class LatePolicies:
    """Writes a line for each deployment whose policy is late, at most one a minute.

    Args:
        counts: returns how often each deployment's policy did not answer in time; counts of a
            policy that was replaced begin anew.
        clock: seconds.
    """

    def __init__(
        self, counts: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._counts = counts
        self._lines = LogRateLimit(clock)
        # The count in the last line of each.
        self._told: dict[str, int] = {}

    def look(self) -> None:
        """Log what has been counted since the last line; to be called periodically."""
        counts = self._counts()
        for target, count in counts.items():
            told = self._told.get(target, 0)
            more = count - told if count >= told else count
            if not more or not self._lines.allows(target):
                continue
            self._told[target] = count
            _LOGGER.warning(
                "the policy of %s has not answered within 100 ms %d times; it is asked less often "
                "until it does, and the router's own policy picks replicas meanwhile",
                target,
                more,
            )
        self._told = {target: told for target, told in self._told.items() if target in counts}


# Reports to the controller how many calls wait for deployments that scale with the load.

# The first while calls come or a deployment has no replica, the second otherwise.
_BUSY_PERIOD_S, _IDLE_PERIOD_S = 0.1, 0.25
_IDLE_AFTER_S = 10.0
Stats = Mapping[str, Mapping[str, object]]


class LoadPublisher:
    """Follows the table's own counters as long as a deployment scales.

    Args:
        locate: Returns the controller that sent the last view, which gets the reports.
        connect: Makes the channel to the controller's address.
        stats: Returns ``rust.RoutingTable.stats()``.
    """

    def __init__(
        self,
        locate: Callable[[], MeshAddress],
        connect: Callable[[str], Channel],
        stats: Callable[[], Stats],
    ) -> None:
        self._locate = locate
        self._controller: MeshAddress | None = None
        self._connect = connect
        self._stats = stats
        self._keys: dict[DeploymentKey, bool] = {}  # Whether it has replicas.
        self._task: asyncio.Task[None] | None = None

    def follow(self, views: Views) -> None:
        """Report on those deployments of the views that scale; from the running loop."""
        self._keys = {
            key: bool(view.replicas) for key, view in views.items() if view.scales_with_load
        }
        controller = self._locate()
        if self._keys and controller != self._controller:
            self._controller = controller
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.create_task(self._tell(controller, self._task))

    async def close(self) -> None:
        """Stop reporting. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = self._controller = None

    async def _tell(self, controller: MeshAddress, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        redial = Redial()
        async with self._connect(controller.controller) as channel:
            stub = mesh_pb2_grpc.MeshStub(channel)
            while True:
                # The receiver of a new stream knows nothing of earlier reports.
                changes = LoadChanges()
                try:
                    await stub.Observe(
                        self._loads(changes),
                        metadata=proof(controller.token),
                        wait_for_ready=True,
                    )
                except AioRpcError as error:
                    # The watcher of the same controller says that it is lost.
                    _LOGGER.debug("the controller does not hear of the load: %s", error.details())
                if changes.has_told:
                    redial.reset()
                await redial.pause()

    async def _loads(self, changes: LoadChanges) -> AsyncIterator[mesh_pb2.RouterLoad]:
        loop = asyncio.get_running_loop()
        active_at = loop.time()
        while True:
            if self._keys and (load := changes.look(self._keys, self._stats())) is not None:
                active_at = loop.time()
                yield load
            is_idle = loop.time() - active_at > _IDLE_AFTER_S and all(self._keys.values())
            await asyncio.sleep(_IDLE_PERIOD_S if is_idle else _BUSY_PERIOD_S)


class LoadChanges:
    """Finds what has changed since the last report. Pure."""

    def __init__(self) -> None:
        self._told: dict[DeploymentKey, tuple[int, int]] = {}

    @property
    def has_told(self) -> bool:
        """Whether anything has been reported."""
        return bool(self._told)

    def look(self, keys: Mapping[DeploymentKey, bool], stats: Stats) -> mesh_pb2.RouterLoad | None:
        """Return the report on these deployments; ``None`` if nothing has changed."""
        changed = []
        for key in keys:
            found = stats.get(str(key))
            if found is None:
                continue
            parked, offered = found["parked"], found["offered"]
            assert isinstance(parked, int), "a number of calls"
            assert isinstance(offered, int), "a number of calls"
            if self._told.get(key, (0, 0)) != (parked, offered):
                self._told[key] = parked, offered
                changed.append(
                    mesh_pb2.DeploymentLoad(
                        key=mesh_pb2.DeploymentKey(
                            application=key.application, name=key.deployment
                        ),
                        parked=parked,
                        offered=offered,
                    )
                )
        for gone in self._told.keys() - keys.keys():
            del self._told[gone]
        return mesh_pb2.RouterLoad(deployments=changed) if changed else None


def route_of(
    view: mesh_pb2.DeploymentView, defaults: RouterDefaults, policies: Policies
) -> rust.DeploymentRoute:
    """Return the route of one deployment.

    Args:
        view: what the controller says.
        defaults: what holds in this process where the deployment does not say it.
        policies: those that users have written.
    """
    _tell_of_unknown(view.router.policy)
    return rust.DeploymentRoute(
        view.SerializeToString(),
        methods=_methods(tuple(view.file_descriptors)),
        options=_options(view.router, defaults),
        ranker=policies.ranker_of(view.router.policy_class, view.replicas),
    )


def route_of_questions(view: mesh_pb2.DeploymentView) -> rust.DeploymentRoute:
    """Return a route of one deployment for calls that are addressed to its replicas by name."""
    addressed = mesh_pb2.DeploymentView(
        key=view.key,
        replicas=view.replicas,
        max_queued_requests=view.max_queued_requests,
        max_request_bytes=view.max_request_bytes,
    )
    return rust.DeploymentRoute(addressed.SerializeToString())


def _options(said: mesh_pb2.RouterSettings, defaults: RouterDefaults) -> RouterDefaults:
    """Return the options of a deployment's routers, completed by those of this process."""
    known = said.DESCRIPTOR.fields_by_name
    found = dict(defaults)
    for name, option in OPTIONS.items():
        field = known.get(option.wire or name)
        if not option.is_of_router:
            continue
        if field is None:
            found |= {name: said.options[name]} if name in said.options else {}
        elif not field.has_presence or said.HasField(field.name):
            found[name] = getattr(said, field.name)
    # An option of the deployment, beside max_queued_requests.
    if "max_queued_cost" in said.options:
        found["max_queued_cost"] = said.options["max_queued_cost"]
    found["max_backoff_s"] = max(found["initial_backoff_s"], found["max_backoff_s"])
    return found


@functools.lru_cache(maxsize=64)  # So that each unknown name is logged once.
def _tell_of_unknown(policy: str) -> None:
    """Log a policy that this router does not know, and routes by the default instead."""
    if policy and policy not in POLICIES:
        _LOGGER.warning(
            "this router does not know the policy %r, which a newer controller asks for; "
            "it routes by %r until it is replaced",
            policy,
            DEFAULT_POLICY,
        )


# Views change far more often than the files of their services.
@functools.lru_cache(maxsize=256)
def _methods(file_descriptors: tuple[bytes, ...]) -> dict[str, list[str]]:
    """Return the names of each service's methods, by the service's full name."""
    files = map(descriptor_pb2.FileDescriptorProto.FromString, file_descriptors)
    return {
        f"{file.package}.{service.name}".lstrip("."): [method.name for method in service.method]
        for file in files
        for service in file.service
    }
