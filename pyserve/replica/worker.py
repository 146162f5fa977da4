"""The life of one replica: join, load, construct, serve, drain, end; see ``phases``.

Runs in the event loop of the replica's process; ``process.py`` gives it its settings and turns
signals and the end of the launcher into ``request_stop``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pyserve import garbage
from pyserve.aio import Server
from pyserve.aio.certificates import MeshTls
from pyserve.api.context import attachment, enter_replica, get_replica_context
from pyserve.bridge import running_endpoint
from pyserve.config import DeploymentOptions, MeshSettings
from pyserve.errors import MeshError, OptionError
from pyserve.folders import remove_unused
from pyserve.observe.delays import PROCESS_DELAYS
from pyserve.observe.metrics import ProcessMetrics
from pyserve.observe.traces.process import PROCESS_TRACING, ProcessIdentity
from pyserve.replica.asgi import AsgiApplication
from pyserve.replica.control_tasks import ControlTasks, SharedControlTasks, ThreadedControlTasks
from pyserve.replica.listeners import Listeners
from pyserve.replica.loading import (
    Loaded,
    LoadError,
    StopRequested,
    close,
    construct,
    drain_batches,
    leave_unfinished,
    load,
    stop_application,
)
from pyserve.replica.logs import begin_logs
from pyserve.replica.measures import ReplicaMetrics
from pyserve.replica.membership import Membership, first_context, hello, ready_of
from pyserve.replica.phases import (
    Constructed,
    Constructing,
    Joined,
    Loading,
    Preparation,
    Reconfigurer,
    Serving,
    Stop,
    StoppedEarly,
)
from pyserve.replica.serving import server_of, threads_for
from pyserve.replica.watchdog import LoopWatchdog
from pyserve.stepping.decorator import tell_failure
from pyserve.types import ApplicationName, DeploymentName, ReplicaId
from pyserve.wire.v1 import mesh_pb2

# The kernel closes a launcher's descriptors in any order: its end may be seen before its lock is
# free.
_LAUNCHER_END_TIMEOUT_S = 3.0

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """A replica's settings from its launcher.

    Attributes:
        controller: ``host:port`` or ``unix:path``.
        token: The mesh token.
        application, deployment: What to run.
        replica_id: Its name; empty: the controller assigns one.
        mesh: Node, zone and directories from the environment.
        tls: Certificates for TCP between processes of the mesh; None: plain.
        external: What it runs, if it was not started by the mesh; None: the controller knows.
        metrics: Takes what the replica counts.
        admin: ``host:port`` where they are shown, if this process does so itself; "": its node's
            ingress does.
    """

    controller: str
    token: bytes
    application: ApplicationName
    deployment: DeploymentName
    replica_id: ReplicaId
    mesh: MeshSettings
    tls: MeshTls | None = None
    external: mesh_pb2.External | None = None
    metrics: ProcessMetrics = field(default_factory=lambda: ProcessMetrics("replica"))
    admin: str = ""


class Worker:
    """One replica; made on a running loop, used once. ``on_zone`` is told where it is."""

    def __init__(
        self, settings: WorkerSettings, on_zone: Callable[[str], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._on_zone = on_zone
        self._stop = Stop()
        self._told = False  # The controller asked for the drain, or was told of it.
        self._phase = Joined()
        self._metrics = ReplicaMetrics(settings.metrics)
        if settings.tls is not None:
            settings.metrics.add(settings.tls.add_metrics)
        runs_apart = settings.mesh.concurrency.user_code_in_separate_thread
        make_tasks = ThreadedControlTasks if runs_apart else SharedControlTasks
        membership = partial(
            Membership, settings.controller, settings.token, hello(settings), tls=settings.tls
        )
        self._control_tasks: ControlTasks = make_tasks(
            membership, self._on_command, self._metrics.health
        )
        self.is_constructing = False
        """User code blocks the loop: nothing is in flight, and only a signal can end it."""
        self._has_failed = False
        self.is_orphan = False
        """The launcher has gone, so nothing else cleans up after this replica."""

    def request_stop(self, grace_s: float | None = None) -> None:
        """Begin the drain: what is in flight gets ``grace_s``, by default the deployment's."""
        self._stop.ask(grace_s)

    def abandon(self) -> None:
        """Remove this replica's files, and those of the mesh, whose controller is gone."""
        self._metrics.close()
        self._phase.abandon()
        if self._settings.mesh.run_dir is not None:
            remove_unused(self._settings.mesh.run_dir, _LAUNCHER_END_TIMEOUT_S)

    async def run(self) -> int:
        """Live until the drain has ended; return the exit status of the process."""
        try:
            assign = await self._stop.unless(self._control_tasks.join())
            assigned_at = time.monotonic()
            self._on_zone(assign.zone)
            constructing, made = await self._bring_up(assign)
            self._metrics.initialization_s = time.monotonic() - assigned_at
            await self._serve(assign, constructing, made)
        except StoppedEarly:
            pass
        except StopRequested as stop:
            if stop.unfinished is not None:
                await leave_unfinished(stop.unfinished, self._stop.ends_at(stop.grace_s))
            raise
        except MeshError as error:
            _LOGGER.error("%s", error)
            return 1
        except LoadError as error:
            told = await self._control_tasks.fail(
                summary=error.summary, traceback=error.traceback, user_code=error.user_code
            )
            # A controller that was told shows or keeps the error. A user who started this process
            # himself looks at its log.
            if not told or self._settings.external is not None:
                _LOGGER.error("%s\n%s", error.summary, error.traceback)
            return 1
        finally:
            self._metrics.close()
            await self._control_tasks.leave()
            self._phase.close()
        return 1 if self._has_failed else 0

    async def _bring_up(self, assign: mesh_pb2.Assign) -> tuple[Constructing, Constructed]:
        context = first_context(self._settings, assign)
        enter_replica(context)
        mesh = self._settings.mesh
        is_shown = mesh.metrics.port is not None
        self._metrics.show(context, mesh.run_dir if is_shown else None, self._settings.token)
        self.is_constructing = True
        try:
            own = self._settings
            launched, names = own.external is None, (own.application, own.deployment)
            logs = begin_logs(assign, *names, own.mesh.logs, is_launched=launched)
            self._phase = loading = Loading(self._phase, logs)
            # An exporter may be a module beside the deployment's.
            observe = partial(observe_calls, own, assign.replica_id)
            loaded = load(assign.spec, own.mesh.servicer_functions, observe)
            actors = tuple(each.name for each in loaded.options.deployment_actors)
            enter_replica(replace(context, deployment_actors=actors))
            limit = self._phase.changes.limit or loaded.options.ongoing_requests_limit()
            self._phase = constructing = Constructing(loading, threads_for(loaded.target, limit))
            instance = construct(loaded)
        finally:
            self.is_constructing = False
        return constructing, await self._prepare(loaded, instance)

    async def _prepare(self, loaded: Loaded, instance: object) -> Constructed:
        """Do what comes between the constructor and the first call.

        Raises:
            LoadError: User code raised.
            StoppedEarly: The replica is to end; the instance has taken its leave.
        """
        grace_s = loaded.options.graceful_shutdown_timeout_s
        preparation = Preparation(loaded, instance, self._settings.mesh.http_middlewares)

        def enter() -> None:
            enter_replica(replace(get_replica_context(), servable_object=instance))

        try:
            return await preparation.run(partial(self._stop.unless, default_s=grace_s), enter)
        except StoppedEarly:
            if preparation.is_initialized:
                await self._close(instance, preparation.application, grace_s)
            else:
                await leave_unfinished(instance, self._stop.ends_at(grace_s))
            raise

    async def _serve(
        self, assign: mesh_pb2.Assign, constructing: Constructing, made: Constructed
    ) -> None:
        server = self._make_server(assign, made)
        reconfigurer = Reconfigurer(
            made.instance,
            timeout_s=made.loaded.options.startup_timeout_s,
            config=assign.config,
            report=self._control_tasks.report_reconfigured,
            times=self._metrics.reconfigures,
        )
        settings = self._settings
        plain_service = f"{settings.application}.{settings.deployment}"
        listeners = Listeners(settings.mesh, settings.controller, settings.tls)
        self._phase = serving = Serving(constructing, made, server, listeners, reconfigurer)
        try:
            endpoints = listeners.listen(server)
            garbage.settle()
            await server.start()
            serving.begin()
            ready = ready_of(made, server, assign, endpoints, plain_service)
            await self._control_tasks.announce(ready)
            tell_failure(made.instance, self._end_failed)
            with self._watching_loop() as watchdog:
                self._show_metrics(serving, watchdog)
                counts = partial(_counts, server)
                watching = self._control_tasks.watching(made.instance, made.loaded.options, counts)
                async with watching, reconfigurer:
                    if serving.changes.options is not None:
                        # They came while user code was brought up.
                        self._control_tasks.follow(serving.changes.options)
                    await self._stop.wait()
                grace_s = serving.grace_s()
                await self._drain(serving, grace_s)
        finally:
            self._metrics.end_serving()
            self._phase = serving.end()
        await self._close(made.instance, made.application, grace_s)

    def _show_metrics(self, serving: Serving, watchdog: LoopWatchdog | None) -> None:
        application, native = serving.made.application, serving.server.native
        self._metrics.serve(
            counts=native.stats,
            measures=native.measures,
            limit=serving.limit,
            loop_counts=running_endpoint().raw.stats,
            stalls=None if watchdog is None else watchdog.stats,
            routes=None if application is None else application.measures,
        )

    async def _close(
        self, instance: object, application: AsgiApplication | None, default_grace_s: float
    ) -> None:
        if application is not None:
            await stop_application(application)
        enter_replica(None)
        await close(instance, self._stop.ends_at(default_grace_s))

    def _watching_loop(self) -> contextlib.AbstractContextManager[LoopWatchdog | None]:
        stall_s = self._settings.mesh.concurrency.loop_stall_s
        return LoopWatchdog(stall_s) if stall_s else contextlib.nullcontext()

    def _make_server(self, assign: mesh_pb2.Assign, made: Constructed) -> Server:
        mesh = attachment()
        return server_of(
            made,
            self._settings.mesh,
            application=self._settings.application,
            deployment=self._settings.deployment,
            replica_id=assign.replica_id,
            token=self._settings.token,
            development=assign.development,
            references=None if mesh is None else mesh.references,
        )

    def _end_failed(self, error: Exception) -> None:
        """End a replica whose instance can no longer step; another one takes its place."""
        _LOGGER.error("%s; this replica ends", error)
        self._has_failed = True
        self.request_stop()

    async def _drain(self, serving: Serving, default_grace_s: float) -> None:
        server, made = serving.server, serving.made
        if not self._told:
            await self._control_tasks.begin_drain()
            self._told = True  # Or one that has not heard it would ask once more.
        self._stop.await_another()
        grace_s = default_grace_s if self._stop.grace_s is None else self._stop.grace_s
        if serving.listeners.are_direct:
            grace_s = await self._announce_drain(server, grace_s)
        # Listeners close now. A call that a router has sent meanwhile is refused before it
        # starts, so the router offers it to another replica.
        stopping = asyncio.create_task(server.stop(grace_s))
        # Calls in batches that wait for company, or for a full batch, get no more of it.
        batches = asyncio.create_task(drain_batches(made.instance))
        if made.application is not None:
            made.application.drain()
        again = asyncio.create_task(self._stop.wait())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not stopping.done():
            await server.stop(0)
        await stopping
        batches.cancel()

    async def _announce_drain(self, server: Server, grace_s: float) -> float:
        """Serve on for as long as the ingress does while its health says no.

        Balancers at the direct ports learn by asking that nothing more should come; routers have
        been told.

        Returns:
            The rest of ``grace_s``, which bounds the whole drain.
        """
        server.native.set_healthy(False)
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        announced_s = min(self._settings.mesh.ingress.drain_s, grace_s)
        try:
            async with asyncio.timeout(announced_s):
                await self._stop.wait()
        except TimeoutError:
            return max(grace_s - (loop.time() - begun_at), 0.0)
        return 0.0

    def _on_command(self, command: mesh_pb2.ReplicaCommand) -> None:
        kind = command.WhichOneof("kind")
        if kind == "drain" and self._told:
            return  # Said again: as a second wish it would cut the grace.
        if kind == "drain":
            self._told = True
            self.request_stop(command.drain.grace_s)
        elif kind == "limits":
            self._take_limits(command.limits)
        elif kind == "reconfigure":
            self._phase.reconfigure(command.reconfigure)
        elif kind == "close_web_sockets":
            self._phase.close_web_sockets()

    def _take_limits(self, limits: mesh_pb2.Limits) -> None:
        self._phase.set_limit(limits.max_ongoing_requests)
        if limits.world_size:
            enter_replica(replace(get_replica_context(), world_size=limits.world_size))
        if limits.options_json:
            try:
                options = DeploymentOptions.from_peer(limits.options_json)
                self._control_tasks.follow(options)
                self._phase.follow(options)
            except OptionError as error:
                # The deploy has ended, so this can only be logged.
                _LOGGER.error("%s; this replica goes on as before", error)


def _counts(server: Server) -> tuple[int, int]:
    stats = server.native.stats()
    return stats["in_flight"], stats["calls"]


def observe_calls(settings: WorkerSettings, replica_id: str) -> None:
    """Keep what the calls of this process wait for, and make spans if its settings say so."""
    PROCESS_DELAYS.is_on = True
    identity = ProcessIdentity(
        service=settings.deployment,
        instance=replica_id,
        application=settings.application,
        deployment=settings.deployment,
        replica=replica_id,
        node=settings.mesh.node.node_id,
    )
    PROCESS_TRACING.start(settings.mesh.tracing, identity)
