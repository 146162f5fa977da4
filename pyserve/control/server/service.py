"""``Mesh`` and ``Control`` on the wire: checks and conversions, without decisions.

Handlers write with ``context.write`` instead of yielding, so that their ``finally`` runs in the
task that is cancelled when the peer goes, not when a generator is collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pyserve.config.environment import read_ingress_variables
from pyserve.control.controller import Controller
from pyserve.control.registry import Interest
from pyserve.control.replicas.sessions import Session
from pyserve.control.server.ingresses import Ingresses
from pyserve.control.server.transport import Server, converse
from pyserve.control.state.specs import Run, run_of
from pyserve.errors import PyserveError, VersionSkew
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.version import version
from pyserve.wire.v1 import control_pb2, control_pb2_grpc, mesh_pb2

if TYPE_CHECKING:
    # The messages differ by method, and the real class is not generic.
    Context = grpc.aio.ServicerContext[Any, Any]

# A replica is unknown until its Hello, the first message, which follows the call at once.
_HELLO_TIMEOUT_S = 30.0
_MINOR_RELEASES_APART_MAX = 1
# Between two replies of WatchStatus. People read no faster.
_STATUS_PAUSE_S = 0.1
# Routers know it within some 30 ms; one that hangs must not hold the status up.
_TOLD_WAIT_S = 0.25


def add_services(
    server: Server,
    controller: Controller,
    shut_down: Callable[[float], Awaitable[None]],
    ingresses: Ingresses,
    leave: Callable[[Run, float], Awaitable[Sequence[Run]]],
) -> None:
    """Register both services.

    Args:
        server: not started yet; it checks the mesh token.
        controller: what they speak for.
        shut_down: drains the mesh with a grace in seconds, and lets the process end after it.
        ingresses: of the mesh.
        leave: ends what belongs to a run, or the mesh with a grace in seconds; returns the runs
            that it stays for.
    """
    mesh = MeshService(controller)
    # Not the generated registration: updates leave as the bytes that the registry serialized
    # once for all watchers.
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Join": grpc.stream_stream_rpc_method_handler(
            mesh.Join,
            request_deserializer=mesh_pb2.ReplicaMessage.FromString,
            response_serializer=mesh_pb2.ReplicaCommand.SerializeToString,
        ),
        "Watch": grpc.unary_stream_rpc_method_handler(
            mesh.Watch,
            request_deserializer=mesh_pb2.WatchRequest.FromString,
            response_serializer=None,
        ),
        "Observe": grpc.stream_unary_rpc_method_handler(
            mesh.Observe,
            request_deserializer=mesh_pb2.RouterLoad.FromString,
            response_serializer=mesh_pb2.ObserveReply.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("pyserve.wire.v1.Mesh", handlers),)
    )
    control_pb2_grpc.add_ControlServicer_to_server(
        ControlService(controller, shut_down, ingresses, leave), server
    )


class MeshService:
    """The service that replicas and routers call."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def Join(
        self, requests: AsyncIterator[mesh_pb2.ReplicaMessage], context: Context
    ) -> None:
        """Hold one replica's stream: its messages in, commands out, until either side ends it."""
        hello = await _first_message(requests, context)
        try:
            _check_version(hello.version)
            session = self._controller.join(hello)
        except PyserveError as error:
            await _refuse(context, error)
        try:
            await converse(context, session.next, self._read(requests, session))
        finally:
            # Also when the reader failed: the replica has left, whatever ended its messages.
            self._controller.leave(session)

    async def _read(
        self, requests: AsyncIterator[mesh_pb2.ReplicaMessage], session: Session
    ) -> None:
        try:
            async for message in requests:
                if message.HasField("load"):
                    # Ten times a second: no step of the controller for each.
                    self._controller.autoscaling.on_replica(session.replica_id, message.load)
                else:
                    self._controller.hear(session, message)
        finally:
            session.end()

    async def Observe(
        self, requests: AsyncIterator[mesh_pb2.RouterLoad], context: Context
    ) -> mesh_pb2.ObserveReply:
        """Take in a router's reports of its calls, until it goes."""
        del context
        router, autoscaling = secrets.token_hex(8), self._controller.autoscaling
        try:
            async for load in requests:
                autoscaling.on_router(router, load)
        finally:
            autoscaling.drop_router(router)
        return mesh_pb2.ObserveReply()

    async def Watch(self, request: mesh_pb2.WatchRequest, context: Context) -> None:
        """Send a snapshot, then updates, until the router goes."""
        try:
            _check_version(request.version)
        except VersionSkew as error:
            await _refuse(context, error)
        news = asyncio.Event()
        registry = self._controller.registry
        watcher = registry.watch(_interest(request), news.set, takes_patches=request.takes_patches)
        try:
            while True:
                news.clear()
                while (update := registry.take(watcher)) is not None:
                    await context.write(update)
                await news.wait()
        finally:
            registry.unwatch(watcher)


class ControlService(control_pb2_grpc.ControlServicer):
    """The service that drivers and the command line call."""

    def __init__(
        self,
        controller: Controller,
        shut_down: Callable[[float], Awaitable[None]],
        ingresses: Ingresses,
        leave: Callable[[Run, float], Awaitable[Sequence[Run]]],
    ) -> None:
        self._controller = controller
        self._shut_down = shut_down
        self._ingresses = ingresses
        self._leave = leave

    # The stub knows generators only; the library takes a handler that writes as well.
    async def Deploy(  # type: ignore[override]
        self, request: control_pb2.DeployRequest, context: Context
    ) -> None:
        """Begin a deploy and send its events; it goes on when the driver goes."""
        try:
            watch = self._controller.deploy(request)
        except PyserveError as error:
            await _refuse(context, error)
        try:
            async for event in watch.events():
                await context.write(event)
        finally:
            self._controller.forget(watch)

    # As Deploy.
    async def Apply(  # type: ignore[override]
        self, request: control_pb2.ApplyRequest, context: Context
    ) -> None:
        """Begin the deploy of a file and send its events; it goes on when the driver goes."""
        try:
            applied = self._controller.apply(request)
        except PyserveError as error:
            await _refuse(context, error)
        try:
            await applied.send(context.write)
        finally:
            for watch in applied.watches:
                self._controller.forget(watch)

    async def Config(
        self, request: control_pb2.ConfigRequest, context: Context
    ) -> control_pb2.ConfigReply:
        """Return what the files of applications declared."""
        del request, context
        return control_pb2.ConfigReply(
            declarations=self._controller.declarations(),
            ingress_variables=read_ingress_variables(),
            target_capacity=self._controller.target_capacity(),
        )

    # As Deploy.
    async def WatchStatus(  # type: ignore[override]
        self, request: control_pb2.StatusRequest, context: Context
    ) -> None:
        """Send the status each time that it has changed, until the watcher goes."""
        del request
        told = None
        while True:
            reply = self._controller.status()
            if reply != told:
                told = reply
                await context.write(reply)
                await asyncio.sleep(_STATUS_PAUSE_S)
            else:
                await self._controller.next_step()

    # As Deploy.
    async def Logs(  # type: ignore[override]
        self, request: control_pb2.LogsRequest, context: Context
    ) -> None:
        """Send what replicas have written, then what they write, until the reader goes."""
        try:
            key = self._controller.output.find(
                self._controller.state.deployments, request.application, request.deployment
            )
        except PyserveError as error:
            await _refuse(context, error)
        await self._controller.output.send(
            key,
            context.write,
            lines_max=request.lines_max,
            follow=request.follow,
            replica_id=request.replica_id,
        )

    async def Status(
        self, request: control_pb2.StatusRequest, context: Context
    ) -> control_pb2.StatusReply:
        """Return the status of the mesh."""
        del request, context
        # Those that are processes of their own know best how they are.
        await self._ingresses.look()
        reply = self._controller.status()
        reply.ingresses.extend(self._ingresses.statuses())
        reply.now = time.time()
        await told(self._controller)
        return reply

    async def Delete(
        self, request: control_pb2.DeleteRequest, context: Context
    ) -> control_pb2.DeleteReply:
        """End an application, and answer when it has ended."""
        try:
            await self._controller.delete(request.application)
        except PyserveError as error:
            await _refuse(context, error)
        return control_pb2.DeleteReply()

    async def Cordon(
        self, request: control_pb2.CordonRequest, context: Context
    ) -> control_pb2.CordonReply:
        """Take replicas out of rotation, or back."""
        try:
            outcome = await self._controller.cordon(request.target, undo=request.undo)
        except PyserveError as error:
            await _refuse(context, error)
        return control_pb2.CordonReply(replicas=outcome.replicas, warnings=outcome.warnings)

    async def Shutdown(
        self, request: control_pb2.ShutdownRequest, context: Context
    ) -> control_pb2.ShutdownReply:
        """End the mesh, and answer when every replica has ended."""
        del context
        await self._shut_down(request.grace_s)
        return control_pb2.ShutdownReply()

    # As Deploy.
    async def Follow(  # type: ignore[override]
        self, request: control_pb2.FollowRequest, context: Context
    ) -> None:
        """Send a run the lines for its terminal."""
        run = await self._run(request.run, context)
        runs = self._controller.runs
        follower = runs.follow(run)
        try:
            await context.send_initial_metadata(())
            while (line := await follower.next()) is not None:
                await context.write(control_pb2.FollowEvent(line=line))
        finally:
            runs.leave(follower)

    async def Leave(
        self, request: control_pb2.LeaveRequest, context: Context
    ) -> control_pb2.LeaveReply:
        """End what a run deployed last, or the mesh that it started."""
        run = await self._run(request.run, context)
        others = await self._leave(run, request.grace_s)
        return control_pb2.LeaveReply(
            others=[control_pb2.Run(id=each.id, pid=each.pid) for each in others]
        )

    async def _run(self, message: control_pb2.Run, context: Context) -> Run:
        run = run_of(message)
        if run is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the run has no id")
        return run

    async def Configure(
        self, request: control_pb2.ConfigureRequest, context: Context
    ) -> control_pb2.ConfigureReply:
        """Change what can be changed while ingresses run."""
        if request.HasField("request_timeout_s"):
            if not 0 <= request.request_timeout_s < math.inf:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"request_timeout_s={request.request_timeout_s} is no number of seconds of "
                    "at least 0",
                )
            self._ingresses.set_request_timeout(request.request_timeout_s or None)
        return control_pb2.ConfigureReply()


async def _refuse(context: Context, error: PyserveError) -> NoReturn:
    await context.abort(error.code, str(error))
    raise AssertionError("abort raises")


async def _first_message(
    requests: AsyncIterator[mesh_pb2.ReplicaMessage], context: Context
) -> mesh_pb2.Hello:
    try:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            message = await anext(aiter(requests), None)
    except TimeoutError:
        message = None
    if message is None or message.WhichOneof("kind") != "hello":
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, "the first message of Join must be Hello"
        )
    return message.hello


def _check_version(theirs: str) -> None:
    """Refuse a peer that is more than one minor release away."""
    ours = version()
    try:
        their_major, their_minor = (int(part) for part in theirs.split(".")[:2])
    except ValueError:
        raise VersionSkew(
            f"the peer gave {theirs!r} as its version of pyserve; this controller runs {ours}"
        ) from None
    our_major, our_minor = (int(part) for part in ours.split(".")[:2])
    apart = abs(their_minor - our_minor)
    if their_major != our_major or apart > _MINOR_RELEASES_APART_MAX:
        raise VersionSkew(
            f"the peer runs pyserve {theirs}, this controller {ours}; "
            "they may be at most one minor release apart"
        )


def _interest(request: mesh_pb2.WatchRequest) -> Interest:
    if request.all:
        return None
    return frozenset(
        DeploymentKey(ApplicationName(key.application), DeploymentName(key.name))
        for key in request.deployments
    )


async def told(controller: Controller) -> None:
    """Wait until the ingresses know the current views, for a moment at most.

    A program that reads that a new version serves may call at once, and must not meet an old one.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TOLD_WAIT_S):
            await controller.published()
