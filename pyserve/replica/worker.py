"""The life of one replica: join, load, construct, serve, drain, end.

Runs in the event loop of the replica's process; ``process.py`` gives it its settings and turns
signals and the end of the launcher into ``request_stop``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pyserve.aio import Server
from pyserve.aio.certificates import MeshTls
from pyserve.api.context import attachment, enter_replica, get_replica_context
from pyserve.api.ingress import ingress_of
from pyserve.batching import PROCESS_ACTIVITY, StepState
from pyserve.bridge import running_endpoint
from pyserve.config import DeploymentOptions, MeshSettings, host_port
from pyserve.errors import MeshError, OptionError
from pyserve.folders import remove_unused
from pyserve.multiplexing import PROCESS_DIRECTORY
from pyserve.observe.metrics import ProcessMetrics
from pyserve.replica import garbage
from pyserve.replica.asgi import AsgiApplication
from pyserve.replica.control_tasks import ControlTasks, SharedControlTasks, ThreadedControlTasks
from pyserve.replica.endpoints import SocketPlace, advertised_host, bind_host, choose_socket
from pyserve.replica.http.documents import application_document
from pyserve.replica.loading import (
    Loaded,
    LoadError,
    StopRequested,
    check_first,
    close,
    construct,
    drain_batches,
    front_of,
    initialize,
    leave_unfinished,
    load,
    metadata_json,
    reconfigure,
    start_application,
    stop_application,
    warm_up,
)
from pyserve.replica.logs import ReplicaLogging, begin_logs
from pyserve.replica.measures import ReplicaMetrics
from pyserve.replica.membership import Membership, first_context, hello, ready
from pyserve.replica.observing import observe_calls
from pyserve.replica.ports import DirectPorts
from pyserve.replica.reconfiguring import Reconfigurer
from pyserve.replica.serving import make_server
from pyserve.replica.stopping import Stop, StoppedEarly
from pyserve.replica.threads import EndpointThreads
from pyserve.replica.watchdog import LoopWatchdog
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
        self._server: Server | None = None
        self._application: AsgiApplication | None = None
        self._threads: EndpointThreads | None = None
        self._limit: int | None = None  # Changed since the Assign.
        self._options: DeploymentOptions | None = None  # The same.
        self._logs: ReplicaLogging | None = None
        self._reconfigurer: Reconfigurer | None = None
        self._metadata_json = ""
        self._place: SocketPlace | None = None
        self._direct_ports: DirectPorts | None = None
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
        self.is_orphan = False
        """The launcher has gone, so nothing else cleans up after this replica."""

    def request_stop(self, grace_s: float | None = None) -> None:
        """Begin the drain: what is in flight gets ``grace_s``, by default the deployment's."""
        self._stop.ask(grace_s)

    def abandon(self) -> None:
        """Remove this replica's files, and those of the mesh, whose controller is gone."""
        self._metrics.close()
        if self._place is not None:
            self._place.close()
        if self._settings.mesh.run_dir is not None:
            remove_unused(self._settings.mesh.run_dir, _LAUNCHER_END_TIMEOUT_S)

    async def run(self) -> int:
        """Live until the drain has ended; return the exit status of the process."""
        try:
            assign = await self._stop.unless(self._control_tasks.join())
            assigned_at = time.monotonic()
            self._on_zone(assign.zone)
            loaded, instance = await self._bring_up(assign)
            self._metrics.initialization_s = time.monotonic() - assigned_at
            await self._serve(assign, loaded, instance)
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
            if self._logs is not None:
                self._logs.close()
        return 0

    async def _bring_up(self, assign: mesh_pb2.Assign) -> tuple[Loaded, object]:
        context = first_context(self._settings, assign)
        enter_replica(context)
        mesh = self._settings.mesh
        is_shown = mesh.metrics.port is not None
        self._metrics.show(context, mesh.run_dir if is_shown else None, self._settings.token)
        self.is_constructing = True
        try:
            own = self._settings
            launched, names = own.external is None, (own.application, own.deployment)
            self._logs = begin_logs(assign, *names, own.mesh.logs, is_launched=launched)
            # An exporter may be a module beside the deployment's.
            observe = partial(observe_calls, own, assign.replica_id)
            loaded = load(assign.spec, own.mesh.servicer_functions, observe)
            actors = tuple(each.name for each in loaded.options.deployment_actors)
            enter_replica(replace(context, deployment_actors=actors))
            if ingress_of(loaded.target) is not None or "anyio" in sys.modules:
                # Before the constructor, which may know better. Streams of plain handlers use them.
                limit = loaded.options.ongoing_requests_limit()
                self._threads = EndpointThreads(self._limit or limit)
            instance = construct(loaded)
        finally:
            self.is_constructing = False
        await self._prepare(loaded, instance)
        return loaded, instance

    async def _prepare(self, loaded: Loaded, instance: object) -> None:
        """Do what comes between the constructor and the first call.

        Raises:
            LoadError: User code raised.
            StoppedEarly: The replica is to end; the instance has taken its leave.
        """
        options, is_made = loaded.options, False
        grace_s, startup_s = options.graceful_shutdown_timeout_s, options.startup_timeout_s
        unless_stopped = partial(self._stop.unless, default_s=grace_s)
        try:
            await unless_stopped(initialize(loaded, instance))
            is_made = True
            enter_replica(replace(get_replica_context(), servable_object=instance))
            await unless_stopped(reconfigure(instance, options.user_config, timeout_s=startup_s))
            await unless_stopped(warm_up(instance))
            self._metadata_json = await unless_stopped(metadata_json(instance))
            self._application = await unless_stopped(
                start_application(loaded.target, self._settings.mesh.http_middlewares)
            )
            await unless_stopped(check_first(instance, options.health_check_timeout_s))
        except StoppedEarly:
            if is_made:
                await self._close(instance, grace_s)
            else:
                await leave_unfinished(instance, self._stop.ends_at(grace_s))
            raise

    async def _serve(self, assign: mesh_pb2.Assign, loaded: Loaded, instance: object) -> None:
        server = self._make_server(assign, loaded, instance)
        self._place = choose_socket(self._settings.mesh.run_dir)
        try:
            endpoints = self._listen(server, self._place)
            garbage.settle()
            await server.start()
            self._server = server
            if self._logs is not None:
                self._logs.watch(server)
            # Models that are still loading are reported too, so that routers prefer this replica.
            PROCESS_DIRECTORY.subscribe(server.native.set_models)
            server.native.set_models(PROCESS_DIRECTORY.models())
            # The native half alone: the other one keeps the instance alive beyond its end.
            tell, clear = server.native.set_batch, server.native.clear_batch
            PROCESS_ACTIVITY.listen(partial(_tell_steps, tell, clear))
            if self._limit is not None:
                server.set_maximum_concurrent_rpcs(self._limit)
            plain_service = f"{self._settings.application}.{self._settings.deployment}"
            takes_http = self._application is not None or (server.takes_http and callable(instance))
            announced = ready(assign, loaded, endpoints, plain_service, takes_http=takes_http)
            announced.replica_metadata_json = self._metadata_json
            if self._application is not None:
                announced.idempotent_methods.extend(self._application.idempotent_routes)
            elif f"/{plain_service}/__call__" in announced.idempotent_methods:
                announced.idempotent_methods.append("*")
            self._reconfigurer = Reconfigurer(
                instance,
                timeout_s=loaded.options.startup_timeout_s,
                config=assign.config,
                report=self._control_tasks.report_reconfigured,
                times=self._metrics.reconfigures,
            )
            await self._control_tasks.announce(announced)
            limit = loaded.options.ongoing_requests_limit()
            with self._watching_loop() as watchdog:
                self._metrics.serve(
                    counts=server.native.stats,
                    measures=server.native.measures,
                    limit=lambda: self._limit or limit,
                    loop_counts=running_endpoint().raw.stats,
                    stalls=None if watchdog is None else watchdog.stats,
                    routes=None if self._application is None else self._application.measures,
                )
                counts = partial(_counts, server)
                watching = self._control_tasks.watching(instance, loaded.options, counts)
                async with watching, self._reconfigurer:
                    if self._options is not None:
                        # They came while user code was brought up.
                        self._control_tasks.follow(self._options)
                    await self._stop.wait()
                grace_s = (self._options or loaded.options).graceful_shutdown_timeout_s
                await self._drain(server, instance, grace_s)
        finally:
            self._metrics.end_serving()
            self._reconfigurer = None  # It keeps the instance alive.
            self._place.close()
            if self._direct_ports is not None:
                self._direct_ports.close()
        await self._close(instance, grace_s)

    async def _close(self, instance: object, default_grace_s: float) -> None:
        if self._application is not None:
            await stop_application(self._application)
        enter_replica(None)
        await close(instance, self._stop.ends_at(default_grace_s))
        gc.unfreeze()  # So that a __del__ inside a reference cycle is found at exit too.

    def _watching_loop(self) -> contextlib.AbstractContextManager[LoopWatchdog | None]:
        stall_s = self._settings.mesh.concurrency.loop_stall_s
        return LoopWatchdog(stall_s) if stall_s else contextlib.nullcontext()

    def _make_server(self, assign: mesh_pb2.Assign, loaded: Loaded, instance: object) -> Server:
        mesh, application = attachment(), self._application
        name = self._settings.deployment
        try:
            return make_server(
                loaded,
                instance,
                application=self._settings.application,
                deployment=name,
                replica_id=assign.replica_id,
                token=self._settings.token,
                development=assign.development,
                limits=self._settings.mesh.ingress,
                references=None if mesh is None else mesh.references,
                http=None if application is None else application.handle,
                describe=None
                if application is None
                else partial(application_document, application.inner, name),
                front=front_of(self._settings.mesh.http_middlewares),
            )
        except ValueError as error:
            raise LoadError(
                f"the options of {name!r} cannot be served: {error}",
                traceback.format_exc(),
                user_code=True,
            ) from error

    def _listen(self, server: Server, place: SocketPlace) -> mesh_pb2.Endpoints:
        node, controller = self._settings.mesh.node, self._settings.controller
        host = bind_host(node, controller)
        try:
            port = self._listen_tcp(server, host_port(host, 0))
            _listen_near(server, place)
            direct = self._listen_directly(server, host)
        except MeshError as error:  # Of a folder, and it says what to do.
            raise LoadError(str(error), traceback.format_exc(), user_code=False) from error
        except (OSError, RuntimeError) as error:  # RuntimeError: as grpc has it.
            raise LoadError(
                f"the replica cannot listen on {host}: {error}; look at PYSERVE_BIND_HOST",
                traceback.format_exc(),
                user_code=False,
            ) from error
        advertised = advertised_host(node, controller, host)
        return mesh_pb2.Endpoints(
            address=host_port(advertised, port),
            unix_path=str(place.path) if place.is_bound else "",
            proves_itself=True,
            **{name: host_port(advertised, port) for name, port in direct.items()},
        )

    def _listen_tcp(self, server: Server, address: str) -> int:
        tls = self._settings.tls
        if tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, tls.server_credentials)

    def _listen_directly(self, server: Server, host: str) -> dict[str, int]:
        """Bind the ports for balancers outside of the mesh; return them by their endpoint."""
        mesh, settings = self._settings.mesh, self._settings.mesh.direct_ingress
        if not settings.enabled:
            return {}
        self._direct_ports = ports = DirectPorts(mesh.run_dir or mesh.home, settings)

        tls = None if self._settings.tls is None else self._settings.tls.server_credentials.native

        def bind(port: int, *, doors: bool) -> int:
            # Never shared with another process, as ports of grpc's servers are by default.
            return server.native.listen_tcp(host_port(host, port), tls, False, doors=doors)

        return {
            "direct_grpc": ports.lease(settings.grpc, partial(bind, doors=False)),
            "direct_http": ports.lease(settings.http, partial(bind, doors=True)),
        }

    async def _drain(self, server: Server, instance: object, default_grace_s: float) -> None:
        if not self._told:
            await self._control_tasks.begin_drain()
            self._told = True  # Or one that has not heard it would ask once more.
        self._stop.await_another()
        grace_s = default_grace_s if self._stop.grace_s is None else self._stop.grace_s
        if self._direct_ports is not None:
            grace_s = await self._announce_drain(server, grace_s)
        # Listeners close now. A call that a router has sent meanwhile is refused before it
        # starts, so the router offers it to another replica.
        stopping = asyncio.create_task(server.stop(grace_s))
        # Calls in batches that wait for company, or for a full batch, get no more of it.
        batches = asyncio.create_task(drain_batches(instance))
        if self._application is not None:
            self._application.drain()
        again = asyncio.create_task(self._stop.wait())
        await asyncio.wait({stopping, again}, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not stopping.done():
            await server.stop(0)
        await stopping
        batches.cancel()
        self._server = None

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
        elif kind == "reconfigure" and self._reconfigurer is not None:
            # It comes after Ready only, and what ends needs it no more.
            self._reconfigurer.take(command.reconfigure)
        elif kind == "close_web_sockets" and self._application is not None:
            self._application.drain()
            if self._server is not None:  # Balancers at direct ports go elsewhere.
                self._server.native.set_healthy(False)

    def _take_limits(self, limits: mesh_pb2.Limits) -> None:
        self._limit = limits.max_ongoing_requests
        if self._server is not None:
            self._server.set_maximum_concurrent_rpcs(self._limit)
        if self._threads is not None:
            self._threads.follow(self._limit)
        if limits.world_size:
            enter_replica(replace(get_replica_context(), world_size=limits.world_size))
        if limits.options_json:
            try:
                self._take_options(DeploymentOptions.from_peer(limits.options_json))
            except OptionError as error:
                # The deploy has ended, so this can only be logged.
                _LOGGER.error("%s; this replica goes on as before", error)

    def _take_options(self, options: DeploymentOptions) -> None:
        self._options = options
        self._control_tasks.follow(options)
        if self._reconfigurer is not None:
            self._reconfigurer.timeout_s = options.startup_timeout_s
        if self._logs is not None:
            self._logs.follow(options.logging_config)


def _listen_near(server: Server, place: SocketPlace) -> None:
    """Listen at the Unix socket; where that cannot be, routers of this machine use TCP too."""
    try:
        server.add_insecure_port(f"unix:{place.path}")  # for this user only
    except (OSError, RuntimeError) as error:
        _LOGGER.warning(
            "this replica listens on TCP only, because %s cannot be bound: %s; calls of this "
            "machine take longer that way",
            place.path,
            error,
        )
    else:
        place.is_bound = True


def _counts(server: Server) -> tuple[int, int]:
    stats = server.native.stats()
    return stats["in_flight"], stats["calls"]


def _tell_steps(
    tell: Callable[..., None], clear: Callable[[], None], state: StepState | None
) -> None:
    """Leave what the batcher does for the trailers of answers."""
    if state is None:
        clear()
    else:
        # `dataclasses.asdict` copies deeply, for each batch.
        tell(**{name: getattr(state, name) for name in StepState.__slots__})
