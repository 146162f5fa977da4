"""The listener in front of the mesh: its table, the feed of the table, and its own services."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyserve.aio.certificates import MeshTls
from pyserve.aio.mesh_channel import dial
from pyserve.bridge import rust
from pyserve.config import LogSettings, NodeSettings, RouterDefaults, TracingSettings, is_loopback
from pyserve.config.control import FIRST_VIEW_TIMEOUT_S
from pyserve.config.ingress import IngressSettings
from pyserve.config.tls import SecuritySettings
from pyserve.control.server.ingresses import IngressState
from pyserve.errors import MeshError
from pyserve.gateway.access_log import IngressAccessLog, begin_access_log
from pyserve.gateway.builtin import BuiltinServices
from pyserve.gateway.security import IngressSecurity
from pyserve.listening import bind_all
from pyserve.observe.metrics import Scrape
from pyserve.observe.traces.process import PROCESS_TRACING, ProcessIdentity
from pyserve.routing.feed import TableFeed, route_of_questions
from pyserve.routing.measures import Exemplars, add_ingress, add_table
from pyserve.routing.records import CallRecords
from pyserve.routing.shared_memory import shared_memory_bytes
from pyserve.routing.watcher import Views, Watch, Way
from pyserve.types import DeploymentKey, MeshAddress
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, mesh_pb2

_LOGGER = logging.getLogger(__name__)
# How often a drain looks whether the last call has ended; nothing reports that. Only drains do.
_DRAIN_CHECK_S = 0.02
# Enough for one machine's network; more threads only share the same work. Arbitrary.
_IO_THREADS_MAX = 4
_BUILTIN_GRACE_S = 0.2


class IngressServer:
    """An ingress from ``start`` to ``stop``.

    Args:
        addresses: ``host:port`` each; port 0 picks one. A loopback address of a family that this
            machine does not have is left out if another address remains.
        held: sockets that somebody else has bound, and may keep; in place of ``addresses``.
        controller: whom the table follows.
        node: where this process is.
        run_dir: where the socket of the ingress's own services goes.
        tls: certificates for connections to replicas over TCP; None: plain.
        security: what guards the listener; None: nothing.
        settings: limits and times.
        defaults: of the routers, where a deployment does not say it.
        way: to the controllers that come after this one; None: they have its address.
        tracing: of this process; None: nothing is traced.
        logs: how this process logs; None: without a line for each call.
        watch: makes what gets the views; None: the controller sends them.

    Attributes:
        addresses: where it listens, once it does.
        admin: ``host:port`` of its node's metrics; "": none.
        id: random, of this ingress.
        state: how it is; ``on_state`` is called when that has changed.
        records: of calls that have ended, for whoever listens.
        views: what the controller says of each deployment.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        controller: MeshAddress,
        node: NodeSettings,
        run_dir: Path,
        held: Sequence[socket.socket] = (),
        tls: MeshTls | None = None,
        security: IngressSecurity | None = None,
        settings: IngressSettings | None = None,
        defaults: RouterDefaults | None = None,
        way: Way | None = None,
        tracing: TracingSettings | None = None,
        logs: LogSettings | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.addresses: tuple[str, ...] = ()
        self.admin = ""
        self.id = secrets.token_hex(8)
        self.state = IngressState.STARTING
        self.on_state: Callable[[], None] = lambda: None
        self._node = node
        self._started_at = 0.0
        self._trace(tracing or TracingSettings())
        settings = settings or IngressSettings()
        io_threads = settings.io_threads or min(_usable_cores(), _IO_THREADS_MAX)
        self._settings = settings = replace(settings, io_threads=io_threads)
        self.records = CallRecords(samples_root=True)
        self._exemplars = Exemplars()
        self.records.listen(self._exemplars.take, is_lazy=True)
        self._drainer: asyncio.Task[None] | None = None
        self._logs = logs
        self._access_log: IngressAccessLog | None = None
        self._new_table = partial(
            rust.RoutingTable,
            node=node.node_id,
            zone=node.zone,
            token=controller.token,
            connect_timeout_s=settings.connect_timeout_s,
            idle_timeout_s=settings.server_timeout_s,
            tls=None if tls is None else tls.client,
            shared_memory_bytes=shared_memory_bytes(node),
        )
        self._table = self._new_table(seed=secrets.randbits(64), records=self.records.native)
        self._security = security or IngressSecurity(SecuritySettings())
        self._follower: asyncio.Task[None] | None = None
        self._builtin = BuiltinServices(run_dir, node, controller.token, self._table, tls)
        self.feed = TableFeed(
            controller,
            node,
            self._table,
            None,
            extra_routes=self._routes,
            connect=partial(dial, tls=tls, keepalive=way is not None),
            defaults=defaults,
            way=way,
            watch=watch,
        )
        self.views: Views = {}
        self._sockets = [*held] or bind_all(addresses)
        self._native = self._new_listener()

    def _new_listener(self) -> rust.Ingress:
        settings = self._settings
        assert settings.io_threads is not None, "chosen where nobody did"
        return rust.Ingress(
            self._table,
            addresses=[],
            io_threads=settings.io_threads,
            tls=self._security.tls,
            access=self._security.access,
            limits=_limits(settings),
            root_path=settings.root_path,
            trusted_proxies=settings.trusted_proxies,
            proxy_protocol=settings.proxy_protocol,
        )

    async def start(self) -> None:
        """Follow the controller, then listen.

        Raises:
            MeshError: an address cannot be listened at, or the controller does not answer.
        """
        self._drainer = asyncio.create_task(self.records.follow())
        await self._builtin.start()
        self.feed.start()
        try:
            await self.feed.wait_version(timeout_s=FIRST_VIEW_TIMEOUT_S)
        except TimeoutError:
            raise MeshError("the ingress got no view of the mesh from its controller") from None
        self._follower = asyncio.create_task(self._security.follow())
        try:
            sockets = [each.detach() for each in self._sockets]
            self.addresses = tuple(self._native.start(sockets))
            self._started_at = time.monotonic()
        except OSError as error:
            raise MeshError(
                f"the ingress cannot listen: {error}; choose another address "
                "(--address HOST:PORT, port 0 picks a free one)"
            ) from error
        if self._logs is not None:
            self._access_log = begin_access_log(self.records, self._calls, self._logs)
        self._become(IngressState.HEALTHY)
        self._warn_of_openness()
        self._warn_of_descriptors(self._native.stats()["connections_max"])

    def _trace(self, settings: TracingSettings) -> None:
        node = self._node.node_id
        identity = ProcessIdentity(service="pyserve-ingress", instance=self.id, node=node)
        PROCESS_TRACING.start(settings, identity)

    def _warn_of_descriptors(self, connections_max: int) -> None:
        """Say it when the process may not open as many sockets as it has been told to take."""
        wanted = self._settings.connections_max
        if connections_max < wanted:
            # Few miss the rest of what most machines nearly have; `status` shows the number.
            _LOGGER.log(
                logging.WARNING if connections_max < wanted // 2 else logging.INFO,
                "the ingress takes %d connections, not %d: its process may open no more files "
                "and sockets, and keeps some for the mesh itself; raise the hard limit "
                "(ulimit -Hn, LimitNOFILE), or set PYSERVE_INGRESS_MAX_CONNECTIONS=%d",
                connections_max,
                wanted,
                connections_max,
            )

    def _warn_of_openness(self) -> None:
        """Say it when other machines may call without proving who they are."""
        opened = [each for each in self.addresses if not is_loopback(each.rpartition(":")[0])]
        if opened and not self._security.knows_callers:
            _LOGGER.warning(
                "the ingress listens at %s: whoever reaches it may call; access rules "
                "(PYSERVE_ACCESS_FILE) say who may do what",
                opened[0],
            )

    def status(self) -> control_pb2.IngressStatus:
        """Return the calls that are in this ingress now, and what it has counted."""
        return ingress_status(
            self._table.stats(),
            counts=self._native.stats(),
            limits=limits_of(self._settings),
            in_flight=self._in_flight(),
            speaks_tls=self.speaks_tls,
            node=self._node.node_id,
            is_draining=self.state in (IngressState.DRAINING, IngressState.DRAINED),
            state=self.state,
            id=self.id,
            pid=os.getpid(),
            version=version(),
            addresses=self.addresses,
            admin=self.admin,
            uptime_s=time.monotonic() - self._started_at if self._started_at else 0.0,
        )

    def add_metrics(self, scrape: Scrape) -> None:
        """Add what this ingress and its router have counted; in its loop."""
        # Before the times that they belong to are read.
        self.records.take_now()
        stats, measures = self._table.stats(), self._table.measures()
        self._exemplars.keep(stats)
        add_table(
            scrape,
            stats,
            measures,
            caller="ingress",
            caller_id=str(os.getpid()),
            exemplars=self._exemplars,
        )
        self.records.add_metrics(scrape, caller="ingress", caller_id=str(os.getpid()))
        self._security.add_metrics(scrape)
        counts = self._native.stats() | {"in_flight": self._in_flight()}
        access = self._security.access
        refusals = None if access is None else access.stats()
        add_ingress(scrape, counts, self._native.doors(), refusals)

    def _routes(self, views: Views) -> Sequence[rust.DeploymentRoute]:
        # The feed never changes this dict but passes a new one, so readers see one state of it.
        self.views = views
        return self._builtin.routes(views)

    @property
    def table(self) -> rust.RoutingTable:
        """Where its calls go."""
        return self._table

    def table_of(self, key: DeploymentKey) -> rust.RoutingTable:
        """Return a table of one deployment for questions of the mesh's own.

        Nobody has sent their calls, so they are in no metric of calls and are not kept; nor do
        they wait behind those that clients have sent.

        Raises:
            ConnectionError: There is no such deployment any more.
        """
        view = self.views.get(key)
        if view is None:
            raise ConnectionError(f"{key} is not deployed any more")
        table = self._new_table(seed=secrets.randbits(64))
        table.apply(1, [route_of_questions(view)])
        return table

    @property
    def speaks_tls(self) -> bool:
        """Clients have to speak TLS."""
        return self._security.tls is not None

    def _become(self, state: IngressState) -> None:
        self.state = state
        self.on_state()

    async def show(self, version: int, timeout_s: float) -> None:
        """Wait until calls go by a version of the view; ``TimeoutError`` if it does not come."""
        await self.feed.wait_version(version, timeout_s=timeout_s)

    def set_request_timeout(self, timeout_s: float | None) -> None:
        """Bound calls for which neither client nor deployment says a time; None: do not."""
        self._native.set_request_timeout(timeout_s)

    async def drain(self, grace_s: float) -> None:
        """Say that nothing more should come, then take nothing more, then wait for the last call.

        Args:
            grace_s: how long calls may take after the last one was taken; the whole drain takes
                at most ``hard_stop_after_s``.
        """
        hard_stop_at = asyncio.get_running_loop().time() + self._settings.hard_stop_after_s
        self._become(IngressState.DRAINING)
        self._builtin.begin_drain()
        self._native.set_healthy(False)
        # A load balancer in front polls the health, and nothing shows when it has done so.
        await asyncio.sleep(min(self._settings.drain_s, self._settings.hard_stop_after_s))
        self._native.drain()
        loop = asyncio.get_running_loop()
        deadline = min(loop.time() + grace_s, hard_stop_at)
        while self._in_flight() and loop.time() < deadline:  # noqa: ASYNC110  # no event
            await asyncio.sleep(_DRAIN_CHECK_S)
        self._become(IngressState.DRAINED)

    async def stop(self) -> None:
        """End what is left and remove the socket. Idempotent."""
        await self.feed.close()
        if self._follower is not None:
            self._follower.cancel()
        self._native.stop()
        for each in self._sockets:
            # Those that were not listened at.
            each.close()
        await self._builtin.stop(_BUILTIN_GRACE_S)
        if self._access_log is not None:
            self._access_log.close()
        if self._drainer is not None:
            self._drainer.cancel()
            await asyncio.wait([self._drainer])

    def _calls(self) -> int:
        return self._native.stats()["calls"]

    def _in_flight(self) -> int:
        return self._native.in_flight()


def _limits(settings: IngressSettings) -> rust.IngressLimits:
    return rust.IngressLimits(
        connections_max=settings.connections_max,
        idle_bytes_max=settings.idle_bytes_max,
        streams_max=settings.streams_max,
        header_bytes_max=settings.header_bytes_max,
        body_bytes_max=settings.body_bytes_max,
        message_bytes_max=settings.message_bytes_max,
        refuses_unknown_fields=settings.refuses_unknown_fields,
        header_timeout_s=settings.header_timeout_s,
        idle_timeout_s=settings.client_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        # A limit of all connections holds for those of HTTP/1.1 too.
        keep_alive_timeout_s=min(settings.keep_alive_timeout_s, settings.client_timeout_s),
        request_timeout_s=settings.request_timeout_s,
        cors_origins=settings.cors_origins,
    )


def _usable_cores() -> int:
    """Count the cores of this process, which may be fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# The table's statistics that are not counters.
_NOT_COUNTED = frozenset(
    {"in_flight", "in_flight_total", "parked", "waiting_for_model", "cache_keys", "cache_bytes"}
)


def ingress_status(
    table: Mapping[str, Mapping[str, object]], **of_process: Any
) -> control_pb2.IngressStatus:
    """Return the status of an ingress.

    Args:
        table: ``rust.RoutingTable.stats``, by "application/Deployment".
        of_process: the fields of the message that have nothing to do with deployments.
    """
    found = control_pb2.IngressStatus(**of_process)
    for target, stats in sorted(table.items()):
        application, _, deployment = target.partition("/")
        of_replica = stats["in_flight"]
        assert isinstance(of_replica, dict)
        found.in_flight_of_replica.update(of_replica)
        routed = control_pb2.RoutedDeployment(
            key=mesh_pb2.DeploymentKey(application=application, name=deployment),
            in_flight=_count(stats["in_flight_total"]),
            parked=_count(stats["parked"]),
            counts={
                name: value
                for name, value in stats.items()
                if isinstance(value, int) and name not in _NOT_COUNTED
            },
        )
        found.parked += routed.parked
        found.deployments.append(routed)
    return found


def limits_of(settings: IngressSettings) -> dict[str, float]:
    """Return the sizes, times and numbers that bound an ingress, by their names."""
    return {
        each.name: float(value)
        for each in dataclasses.fields(settings)
        if isinstance(value := getattr(settings, each.name), int | float)
        and not isinstance(value, bool)
        and each.name != "port"
    }


def _count(value: object) -> int:
    assert isinstance(value, int)
    return value
