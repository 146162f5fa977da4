"""The router inside a driver or a replica: channels that need no hop through the ingress.

One table and one feed serve every channel of the process. The feed has a thread with a loop of
its own, because channels are opened from any thread, with or without a running loop, and a
driver's own loop may be blocked while it waits for a mesh.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyserve import aio
from pyserve.aio.certificates import MeshTls, mesh_tls
from pyserve.aio.mesh_channel import dial
from pyserve.api.context import replica_context
from pyserve.bridge import rust
from pyserve.config import NodeSettings, RouterDefaults
from pyserve.config.control import FIRST_VIEW_TIMEOUT_S
from pyserve.config.routing import read_router_defaults
from pyserve.errors import MeshUnavailable
from pyserve.loop_thread import LoopThread
from pyserve.observe.metrics import ProcessMetrics, Scrape, ScrapePoint
from pyserve.observe.metrics.user import PROCESS_USER_METRICS
from pyserve.observe.traces.process import PROCESS_TRACING
from pyserve.references import References
from pyserve.references.remote import RemoteHolders
from pyserve.routing.feed import TableFeed
from pyserve.routing.measures import Exemplars, add_table
from pyserve.routing.native_caller import NativeCaller, outgoing
from pyserve.routing.records import CallRecords
from pyserve.routing.shared_memory import shared_memory_bytes
from pyserve.routing.watcher import Views, Watch
from pyserve.types import DeploymentKey, MeshAddress, ReplicaId
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
# A controller sends an update in milliseconds; ten seconds cover one that is swapped out.
_VIEW_TIMEOUT_S = 10.0
# Beyond the deadlines of the feed's own loop, for one that is held up; arbitrary.
_MARGIN_S = 5.0
_END_TIMEOUT_S = 10.0


class InProcessRouter:
    """Makes calls and opens channels to deployments; the first starts the feed of the table.

    Args:
        controller: Whom to follow.
        node: Where this process is.
        run_dir: Where sockets of this process go; ``None``: the temporary folder.
        defaults: Of the routers, where a deployment does not say it.
        shows_metrics: Whether scrapes of this node are answered from the first use on; replicas
            do it by themselves.
        watch: Makes what gets the views; ``None``: the controller sends them.

    Attributes:
        controller: The same.
        tls: Certificates for TCP between processes of the mesh; ``None``: plain.

    Raises:
        OptionError: The certificates that the environment names cannot be read or used.
    """

    def __init__(
        self,
        controller: MeshAddress,
        node: NodeSettings,
        run_dir: Path | None = None,
        defaults: RouterDefaults | None = None,
        *,
        shows_metrics: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch
        # Near replicas of the same machine come first for those handles only that ask for it.
        self._defaults = {
            **(defaults or read_router_defaults({})),
            "prefer_local_node": False,
        }
        self.controller = controller
        self.tls = mesh_tls(node.tls)
        self._node = node
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._callers: dict[DeploymentKey, NativeCaller] = {}
        self._calls_loop = CallsLoop()
        self._references: References | None = None
        self._shows_metrics = shows_metrics
        self._scrape_point: ScrapePoint | None = None
        self._closed = False

    def enter_zone(self, zone: str) -> None:
        """Set the zone of this process, unless its environment names one; before its first call."""
        with self._lock:
            self._node = replace(self._node, zone=self._node.zone or zone)

    def prepare(self) -> None:
        """Start the feed of the table, if it does not run yet; users of the table wait for it."""
        with self._lock:
            if self._running is None and not self._closed:
                self._running = self._start()

    def open_channel(self, key: DeploymentKey) -> aio.Channel:
        """Return a channel whose calls go to one deployment's replicas.

        Raises:
            MeshUnavailable: The controller does not answer, or ``close`` was called.
        """
        with self._lock:
            table = self._open().table
        return aio.Channel(rust.Channel(str(key), table=table), outgoing=outgoing)

    def open_channel_to(self, key: DeploymentKey, replica_id: ReplicaId) -> aio.Channel:
        """Return a channel whose calls go to one replica of a deployment.

        Raises:
            MeshUnavailable: The controller does not answer, or ``close`` was called.
        """
        with self._lock:
            table = self._open().table
        return aio.Channel(
            rust.Channel(str(key), table=table), replica_id=replica_id, outgoing=outgoing
        )

    def caller(self, key: DeploymentKey) -> NativeCaller:
        """Return what makes the calls to one deployment; the same one every time.

        Raises:
            MeshUnavailable: The controller does not answer, or ``close`` was called.
        """
        caller = self._callers.get(key)
        if caller is None:
            with self._lock:
                running = self._open()
                made = NativeCaller(
                    key, running.table, partial(running.view, key), self._node.node_id
                )
                caller = self._callers.setdefault(key, made)
        return caller

    @property
    def references(self) -> References:
        """The values that this process holds, and its way to those of others."""
        found = self._references
        if found is None:
            with self._lock:
                found = self._references or self._make_references()
                self._references = found
        return found

    def knows(self, key: DeploymentKey) -> bool:
        """Return whether the controller has said that there is such a deployment; never blocks."""
        running = self._running
        return running is not None and running.view(key) is not None

    def await_view(self, version: int) -> None:
        """Block until the table has a version of the view, if this process has one already.

        Raises:
            MeshUnavailable: The controller does not send it.
        """
        with self._lock:
            running = self._running
        if running is not None:
            running.await_view(version)

    def add_metrics(self, scrape: Scrape) -> None:
        """Add what the router of this process has counted, if there is one; from any thread."""
        running, replica = self._running, replica_context()
        if running is None:
            return
        caller, caller_id = "driver", str(os.getpid())
        if replica is not None:
            caller, caller_id = f"{replica.app_name}/{replica.deployment}", replica.replica_id
        running.add_metrics(scrape, caller, caller_id)

    def calls_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for calls from threads without a running loop; made on first use."""
        return self._calls_loop.get()

    def close(self) -> None:
        """End the feed and the calls of handles. Channels stay usable until the replicas go.

        Idempotent.
        """
        with self._lock:
            running, self._running, self._closed = self._running, None, True
            callers, self._callers = self._callers, {}
        for caller in callers.values():
            caller.close()
        self._calls_loop.close()
        if self._references is not None:
            self._references.close()
        if running is not None:
            running.close()
        if self._scrape_point is not None:
            self._scrape_point.close()

    def _make_references(self) -> References:
        replica = replica_context()
        return References(
            node=self._node.node_id,
            token=self.controller.token,
            holder_id="" if replica is None else replica.replica_id,
            application="" if replica is None else replica.app_name,
            deployment="" if replica is None else replica.deployment,
            run_dir=self._run_dir,
            remote=RemoteHolders(self.open_channel_to),
        )

    def _open(self) -> _Running:
        """Return table and views, which are fed from now on; under the lock."""
        if self._closed:
            raise MeshUnavailable("the mesh of this handle has been shut down")
        running = self._running
        if running is None:
            running = self._running = self._start()
        try:
            running.await_first_view()
        except BaseException:
            self._running = None  # The next one tries again.
            running.close()
            raise
        return running

    def _start(self) -> _Running:
        if self._shows_metrics and self._scrape_point is None:
            self._scrape_point = self._show_metrics()
        return _Running(self.controller, self._node, self.tls, self._defaults, self._watch)

    def _show_metrics(self) -> ScrapePoint | None:
        """Answer scrapes beside the controller's socket, if it is on this machine."""
        kind, _, path = self.controller.controller.partition(":")
        if kind != "unix":
            return None
        metrics = ProcessMetrics("driver")
        metrics.add(self.add_metrics)
        metrics.add(PROCESS_USER_METRICS.add_to)
        try:
            return ScrapePoint(metrics, Path(path).parent, self.controller.token)
        except OSError as error:
            _LOGGER.info("this process has no socket for metrics: %s", error)
            return None


class _Running:
    """The table, and the thread that feeds it."""

    def __init__(
        self,
        controller: MeshAddress,
        node: NodeSettings,
        tls: MeshTls | None,
        defaults: RouterDefaults,
        watch: Watch | None,
    ) -> None:
        self._watch = watch
        self._tls = tls
        self._defaults = defaults
        # Calls of a replica belong to the request that it answers; only scripts begin traces. Where
        # nothing is traced, nobody would take the records.
        self._records: CallRecords | None = None
        self._exemplars = Exemplars()
        if PROCESS_TRACING.spans is not None:
            self._records = CallRecords(samples_root=replica_context() is None)
            self._records.listen(self._exemplars.take)
        self.table = rust.RoutingTable(
            node=node.node_id,
            zone=node.zone,
            token=controller.token,
            seed=secrets.randbits(64),
            tls=None if self._tls is None else self._tls.client,
            records=None if self._records is None else self._records.native,
            shared_memory_bytes=shared_memory_bytes(node),
        )
        self._views: Views = {}
        self._feed_of = (controller, node)
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = contextlib.AsyncExitStack()
        self._thread = LoopThread("pyserve-feed", waits_for_threads=True)
        self._ready = self._thread.run(self._begin())

    def await_first_view(self) -> None:
        """Block until the table knows the mesh.

        Raises:
            MeshUnavailable: The controller sends no view.
        """
        try:
            # As a rule the wait for the first view ends before, and says so.
            self._ready.result(FIRST_VIEW_TIMEOUT_S + _MARGIN_S)
        except TimeoutError:
            raise self._no_view(FIRST_VIEW_TIMEOUT_S) from None
        except concurrent.futures.CancelledError:
            raise MeshUnavailable("the mesh of this handle has been shut down") from None

    def add_metrics(self, scrape: Scrape, caller: str, caller_id: str) -> None:
        """Add what the router has counted; from any thread."""
        stats, measures = self.table.stats(), self.table.measures()
        labels = {"caller": caller, "caller_id": caller_id}
        add_table(scrape, stats, measures, **labels, exemplars=self._exemplars)
        if self._records is not None:
            self._records.add_metrics(scrape, **labels)

    def view(self, key: DeploymentKey) -> mesh_pb2.DeploymentView | None:
        """Return what the controller says about a deployment; from any thread."""
        return self._views.get(key)

    def await_view(self, version: int) -> None:
        """Block until the table has that version; from any thread but the feed's."""
        self.await_first_view()
        wait = self._feed.wait_version(version, timeout_s=_VIEW_TIMEOUT_S)
        try:
            self._thread.run(wait).result(_VIEW_TIMEOUT_S + _MARGIN_S)
        except TimeoutError:
            raise self._no_view(_VIEW_TIMEOUT_S) from None

    def _no_view(self, timeout_s: float) -> MeshUnavailable:
        return MeshUnavailable(
            f"the controller at {self._feed_of[0].controller} sent no view of the mesh within "
            f"{timeout_s:g} s; look whether it runs with `pyserve status`"
        )

    def close(self) -> None:
        """End the thread. Idempotent."""
        if self._thread.is_running:
            # One that waits for a view has no use for it any more.
            self._ready.cancel()
            try:
                self._thread.run(self._end()).result(_END_TIMEOUT_S)
            except TimeoutError:
                _LOGGER.warning("the feed of this process did not end within %g s", _END_TIMEOUT_S)
            self._thread.close()

    async def _begin(self) -> None:
        controller, node = self._feed_of
        self._feed = TableFeed(
            controller,
            node,
            self.table,
            None,
            extra_routes=self._note,
            connect=partial(dial, tls=self._tls),
            defaults=self._defaults,
            for_handles=True,
            watch=self._watch,
        )
        self._closing.push_async_callback(self._feed.close)
        if self._tls is not None:
            self._tasks.append(asyncio.create_task(self._tls.follow()))
        if self._records is not None:
            self._tasks.append(asyncio.create_task(self._records.follow()))
        self._feed.start()
        await self._feed.wait_version(timeout_s=FIRST_VIEW_TIMEOUT_S)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._closing.aclose()

    def _note(self, views: Views) -> Sequence[rust.DeploymentRoute]:
        self._views = dict(views)  # A copy: others read it while the feed changes its own.
        self._exemplars.keep(set(map(str, views)))
        return ()


class CallsLoop:
    """A loop in a daemon thread of its own, made on first use. Thread-safe."""

    def __init__(self, name: str = "pyserve-calls") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the running loop.

        Raises:
            RuntimeError: ``close`` was called.
        """
        return (self._thread or self._start()).loop

    def close(self) -> None:
        """Cancel what runs on the loop and end its thread. Idempotent."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _start(self) -> LoopThread:
        with self._lock:
            if self._closed:
                raise RuntimeError("the mesh of this handle has been shut down")
            if self._thread is None:
                self._thread = LoopThread(self._name, waits_for_threads=True)
            return self._thread
