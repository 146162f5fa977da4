"""The replica's stream to its controller: joins, announces itself, joins again when it breaks.

Losing the controller stops nothing: the replica goes on serving, dials with backoff, and says
Hello and Ready again without a new construction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from pyserve.aio import Channel, Server
from pyserve.aio.certificates import MeshTls
from pyserve.aio.internal import loaded_files
from pyserve.aio.mesh_channel import Redial, dial, is_reached, proof
from pyserve.api.context import GangContext, ReplicaContext
from pyserve.errors import MeshError
from pyserve.replica.idempotence import idempotent_paths, repeatable_http
from pyserve.replica.loading import Loaded
from pyserve.replica.phases import Constructed
from pyserve.replica.servicers import file_descriptors
from pyserve.types import ReplicaId, ReplicaRank
from pyserve.version import version
from pyserve.wire.v1 import mesh_pb2, mesh_pb2_grpc

if TYPE_CHECKING:
    from pyserve.replica.worker import WorkerSettings

_LOGGER = logging.getLogger(__name__)
# Statuses with which a controller refuses a replica for good.
_REFUSALS = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
# How long a last message may take to reach a controller; it is on this machine or close by.
_FAREWELL_TIMEOUT_S = 2.0
JoinCall = grpc.aio.StreamStreamCall[mesh_pb2.ReplicaMessage, mesh_pb2.ReplicaCommand]


class Membership:
    """One replica's place in the mesh.

    Args:
        controller: ``host:port`` or ``unix:path``.
        token: The mesh token.
        hello: What the replica is.
        on_command: Called with every command after the first Assign, in the loop's thread.
        tls: Certificates for a controller at ``host:port``; they are followed from here, since
            this loop does not wait for user code. None: plain.
    """

    def __init__(
        self,
        controller: str,
        token: bytes,
        hello: mesh_pb2.Hello,
        on_command: Callable[[mesh_pb2.ReplicaCommand], None],
        *,
        tls: MeshTls | None = None,
    ) -> None:
        self._tls = tls
        self._follower: asyncio.Task[None] | None = None
        self._controller = controller
        self._metadata = proof(token)
        self._hello = hello
        self._on_command = on_command
        self._assigned: asyncio.Future[mesh_pb2.Assign] = asyncio.get_running_loop().create_future()
        self._ready: mesh_pb2.Ready | None = None
        self._routing_stats: mesh_pb2.RoutingStats | None = None
        self._load: mesh_pb2.ReplicaLoad | None = None
        self._call: JoinCall | None = None  # The open stream, if there is one.
        self._write_lock = asyncio.Lock()  # grpc allows one write at a time.
        self._task: asyncio.Task[None] | None = None
        self._is_draining = False
        self._is_leaving = False

    async def join(self) -> mesh_pb2.Assign:
        """Start to keep a stream open, and return what this replica is to run.

        Raises:
            MeshError: The controller refuses this replica.
        """
        if self._tls is not None:
            self._follower = asyncio.create_task(self._tls.follow())
        self._task = asyncio.create_task(self._stay())
        return await self._assigned

    async def announce(self, ready: mesh_pb2.Ready) -> None:
        """Report that calls may come, now and after every new join."""
        self._ready = ready
        await self._send(mesh_pb2.ReplicaMessage(ready=ready))

    async def report_health(self, *, healthy: bool, reason: str) -> None:
        """Report one health check."""
        health = mesh_pb2.Health(healthy=healthy, reason=reason)
        await self._send(mesh_pb2.ReplicaMessage(health=health))

    async def report_routing_stats(self, stats_json: str) -> None:
        """Report what the class says of itself, now and after every new join."""
        self._routing_stats = mesh_pb2.RoutingStats(json=stats_json)
        await self._send(mesh_pb2.ReplicaMessage(routing_stats=self._routing_stats))

    async def report_load(self, load: mesh_pb2.ReplicaLoad) -> None:
        """Report the calls that are here, now and after every new join."""
        self._load = load
        await self._send(mesh_pb2.ReplicaMessage(load=load))

    async def report_reconfigured(self, outcome: mesh_pb2.Reconfigured) -> None:
        """Report how ``reconfigure`` ended; what was taken on is told after every new join."""
        if self._ready is not None and not outcome.summary:
            self._ready.config = outcome.config
        await self._send(mesh_pb2.ReplicaMessage(reconfigured=outcome))

    async def begin_drain(self) -> None:
        """Say that this replica stops by itself, now and after every new join.

        Nothing new is sent to it then.
        """
        self._is_draining = True
        await self._send(mesh_pb2.ReplicaMessage(draining=mesh_pb2.Draining()))

    async def fail(self, *, summary: str, traceback: str, user_code: bool) -> bool:
        """Report that this replica cannot be brought up. It ends after this.

        Returns:
            Whether there was a controller to tell.
        """
        failed = mesh_pb2.Failed(summary=summary, traceback=traceback, user_code=user_code)
        return await self._send(mesh_pb2.ReplicaMessage(failed=failed))

    async def leave(self) -> None:
        """Close the stream in order, within a bounded time, and dial no more."""
        call = self._call
        self._is_leaving = True
        if call is not None:
            # The controller ends its side once it has read everything; its death is as good.
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_TIMEOUT_S):
                    await call.done_writing()
                    await call.code()
        if self._follower is not None:
            self._follower.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send(self, message: mesh_pb2.ReplicaMessage) -> bool:
        """Write to the stream if it is open; ``_stay`` joins again after a broken one."""
        async with self._write_lock:
            if self._call is None:
                return False
            try:
                await self._call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return False
            return True

    async def _stay(self) -> None:
        redial = Redial()
        is_over = False
        while not is_over:
            async with dial(self._controller, self._tls) as channel:
                is_over = await self._stay_by(channel, redial)

    async def _stay_by(self, channel: Channel, redial: Redial) -> bool:
        """Join over a channel repeatedly; return whether joining is over for good.

        If not, nothing answers there, and another channel may reach a controller.
        """
        stub: mesh_pb2_grpc.MeshAsyncStub = mesh_pb2_grpc.MeshStub(channel)
        while await is_reached(channel):
            try:
                # The channel dials by itself, with the same backoff, until it is connected.
                call = stub.Join(metadata=self._metadata, wait_for_ready=True)
                if await self._follow(call):
                    redial.reset()
                code, details = await call.code(), await call.details()
            except grpc.aio.AioRpcError as error:
                code, details = error.code(), error.details() or ""
                if not self._assigned.done() and error.code() in _REFUSALS:
                    refusal = MeshError(f"the controller refused: {error.details()}")
                    self._assigned.set_exception(refusal)
                    return True
            finally:
                self._call = None
            if self._is_leaving:
                return True
            # One that ends in order says so, and is not lost: the mesh ends, and this replica
            # soon with it.
            if code is not grpc.StatusCode.OK:
                _LOGGER.warning("lost the controller (%s %s); joining again", code.name, details)
            await redial.pause()
        return False

    async def _follow(self, call: JoinCall) -> bool:
        """Use one stream until it ends; return whether the controller accepted this replica."""
        self._hello.now = time.time()
        await call.write(mesh_pb2.ReplicaMessage(hello=self._hello))
        taken = False
        async for command in call:
            if command.WhichOneof("kind") == "ping":
                await self._send(mesh_pb2.ReplicaMessage(pong=mesh_pb2.Pong()))
                continue
            if command.WhichOneof("kind") != "assign":
                self._on_command(command)
                continue
            taken = True
            async with self._write_lock:
                if self._ready is not None:
                    await call.write(mesh_pb2.ReplicaMessage(ready=self._ready))
                if (stats := self._routing_stats) is not None:
                    await call.write(mesh_pb2.ReplicaMessage(routing_stats=stats))
                if self._load is not None:
                    await call.write(mesh_pb2.ReplicaMessage(load=self._load))
                if self._is_draining:
                    await call.write(mesh_pb2.ReplicaMessage(draining=mesh_pb2.Draining()))
                self._call = call
            if not self._assigned.done():
                self._hello.replica_id = command.assign.replica_id
                self._assigned.set_result(command.assign)
        return taken


# A replica's messages to the controller about itself: its identity, then what it serves.


def ready(
    assign: mesh_pb2.Assign,
    loaded: Loaded,
    endpoints: mesh_pb2.Endpoints,
    plain_service: str,
    *,
    takes_http: bool,
) -> mesh_pb2.Ready:
    """Return the message with its services and addresses."""
    found = mesh_pb2.Ready(
        endpoints=endpoints,
        # A service of the .proto may have the name of the plain one.
        services=list(dict.fromkeys((*(each.name for each in loaded.services), plain_service))),
        file_descriptors=_descriptors(loaded),
        deployment_version=assign.deployment_version,
        config=assign.config,
        http=takes_http,
        idempotent_methods=idempotent_paths(loaded.target, loaded.methods, plain_service),
    )
    _add_inference(found, loaded)
    return found


def ready_of(
    made: Constructed,
    server: Server,
    assign: mesh_pb2.Assign,
    endpoints: mesh_pb2.Endpoints,
    plain_service: str,
) -> mesh_pb2.Ready:
    """Return the message of a replica whose server has started."""
    application = made.application
    takes_http = application is not None or (server.takes_http and callable(made.instance))
    found = ready(assign, made.loaded, endpoints, plain_service, takes_http=takes_http)
    found.replica_metadata_json = made.metadata_json
    found.engine_models.extend(made.models)
    if application is not None:
        found.idempotent_methods.extend(application.idempotent_routes)
    else:
        found.idempotent_methods.extend(repeatable_http(made.loaded.target))
    return found


def _descriptors(loaded: Loaded) -> list[bytes]:
    services = [service.file for service in loaded.services]
    return file_descriptors([*services, *loaded_files()] if services else [])


def first_context(settings: WorkerSettings, assign: mesh_pb2.Assign) -> ReplicaContext:
    """Return the message with its identity, sent before anything is constructed."""
    return ReplicaContext(
        app_name=settings.application,
        deployment=settings.deployment,
        replica_id=ReplicaId(assign.replica_id),
        servable_object=None,
        rank=ReplicaRank(assign.rank.rank, assign.rank.node_rank, assign.rank.local_rank),
        world_size=assign.world_size,
        gang_context=_gang_context(assign),
    )


def _gang_context(assign: mesh_pb2.Assign) -> GangContext | None:
    if not assign.HasField("gang"):
        return None
    gang = assign.gang
    members = tuple(map(ReplicaId, gang.replicas))
    return GangContext(gang.id, gang.rank, len(members), members)


def hello(settings: WorkerSettings) -> mesh_pb2.Hello:
    """Return who it is."""
    return mesh_pb2.Hello(
        replica_id=settings.replica_id,
        application=settings.application,
        deployment=settings.deployment,
        version=version(),
        pid=os.getpid(),
        node=settings.mesh.node.node_id,
        zone=settings.mesh.node.zone,
        external=settings.external,
        admin=settings.admin,
    )


def _add_inference(ready: mesh_pb2.Ready, loaded: Loaded) -> None:
    """Announce the doors of the model that the class declares, if it does."""
    if (model := loaded.model) is None:
        return
    from pyserve.inference import descriptors

    ready.services.append(descriptors.SERVICE)
    ready.file_descriptors.append(descriptors.file_descriptor())
    ready.http_prefixes.append(model.prefix)
