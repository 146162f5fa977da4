"""The services that the ingress answers itself: health, reflection, and Ray Serve's probes.

Of the Open Inference Protocol it answers what is about the mesh as a whole.

They run on a server behind the same routing table as every deployment, as application
``pyserve``, so the native listener needs no second way of answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from pyserve.aio import Server, ServerSettings
from pyserve.aio import Status as AioStatus
from pyserve.aio.certificates import MeshTls
from pyserve.bridge import rust
from pyserve.config import NodeSettings
from pyserve.gateway.descriptors import (
    REFLECTION_V1,
    REFLECTION_V1ALPHA,
    own_files,
    reflection_servicer,
)
from pyserve.gateway.inference import TENSOR_PATHS, InferenceFront
from pyserve.inference.descriptors import SERVICE as INFERENCE
from pyserve.inference.descriptors import file_descriptor as inference_file
from pyserve.routing.watcher import Views
from pyserve.wire.rayserve import api_pb2, api_pb2_grpc
from pyserve.wire.v1 import mesh_pb2

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


# `grpc.health.v1.Health` of the ingress: Check, List and Watch of every service of the mesh.
#
# Statuses change in the loop's thread and never wait for anybody. A watcher sends what holds when
# it gets to it, so one that reads slowly misses states in between and holds nobody up.

# An enumeration of protobuf, whose members are integers.
Status = int
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
# The ingress as a whole, by the protocol's own convention.
_ALL = ""


class HealthService:
    """The health of services by full name; ``""`` is the ingress itself.

    Args:
        watchers_max: streams of ``Watch`` at once. They stay open, so without a bound they would
            take the places of clients that only call ``Check``.
    """

    def __init__(self, *, watchers_max: int) -> None:
        self._statuses: dict[str, Status] = {_ALL: SERVING}
        self._changed = asyncio.Event()
        self._watchers = 0
        self._watchers_max = watchers_max
        self.is_draining = False

    def show(self, statuses: Mapping[str, Status]) -> None:
        """Replace the statuses of all services; ignored during a drain."""
        if not self.is_draining:
            self._replace({_ALL: SERVING, **statuses})

    def begin_drain(self) -> None:
        """Report NOT_SERVING for all services from now on. Idempotent."""
        self.is_draining = True
        self._replace(dict.fromkeys(self._statuses, NOT_SERVING))

    def _replace(self, statuses: dict[str, Status]) -> None:
        if statuses != self._statuses:
            self._statuses = statuses
            # The present waiters hold this event; later ones wait for the next one.
            self._changed.set()
            self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """Return the status of one service; NOT_FOUND if the service is unknown."""
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no deployment has a service {request.service!r}; List names those that exist",
            )
        return health_pb2.HealthCheckResponse(status=status)

    async def List(
        self, request: health_pb2.HealthListRequest, context: Context
    ) -> health_pb2.HealthListResponse:
        """Return the status of every service."""
        del request, context
        return health_pb2.HealthListResponse(
            statuses={
                name: health_pb2.HealthCheckResponse(status=status)
                for name, status in self._statuses.items()
            }
        )

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """Send the status of one service now and whenever it changes, until the client goes."""
        if self._watchers >= self._watchers_max:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._watchers} streams of Watch are open, which is the limit; use Check",
            )
        self._watchers += 1
        try:
            sent: Status | None = None
            while True:
                changed = self._changed
                status = self._statuses.get(request.service, SERVICE_UNKNOWN)
                if status != sent:
                    sent = status
                    await context.write(health_pb2.HealthCheckResponse(status=status))
                else:
                    await changed.wait()
        finally:
            self._watchers -= 1


# `ray.serve.RayServeAPIService`, for probes and clients that were written for Ray Serve.

RAY_SERVE_API = api_pb2.DESCRIPTOR.services_by_name["RayServeAPIService"].full_name


class RayServeApi(api_pb2_grpc.RayServeAPIServiceServicer):
    """Answers as Ray Serve's gRPC proxy does.

    Args:
        is_draining: whether the ingress takes no new calls any more.
        applications: returns the names of all applications.
    """

    def __init__(
        self, is_draining: Callable[[], bool], applications: Callable[[], Collection[str]]
    ) -> None:
        self._is_draining = is_draining
        self._applications = applications

    async def Healthz(
        self, request: api_pb2.HealthzRequest, context: Context
    ) -> api_pb2.HealthzResponse:
        """Return "success", or UNAVAILABLE during a drain."""
        del request
        if self._is_draining():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the ingress is draining")
        return api_pb2.HealthzResponse(message="success")

    async def ListApplications(
        self, request: api_pb2.ListApplicationsRequest, context: Context
    ) -> api_pb2.ListApplicationsResponse:
        """Return the names of all applications, in order."""
        del request, context
        return api_pb2.ListApplicationsResponse(application_names=sorted(self._applications()))


APPLICATION = "pyserve"
DEPLOYMENT = "Builtin"
INFERENCE_DEPLOYMENT = "Inference"
HEALTH = "grpc.health.v1.Health"
REFLECTION = tuple(f"{name}.ServerReflection" for name in (REFLECTION_V1, REFLECTION_V1ALPHA))
SERVICES = (HEALTH, *REFLECTION, RAY_SERVE_API)
_ONGOING_MAX = 1000
_QUEUED_MAX = 1000
# Half of the places: streams that stay open leave the rest to calls that end.
_HEALTH_WATCHERS_MAX = _ONGOING_MAX // 2
# Requests hold a name, but for those that have tensors.
_REQUEST_BYTES_MAX = 64 * 1024
# The limit of user code does not cut streams of Watch and reflection: a year does not either.
_REQUEST_TIMEOUT_S = 365.0 * 24 * 3600
_LOOPBACK = "127.0.0.1:0"


class BuiltinServices:
    """The server of these services, and the route that leads to it.

    Args:
        run_dir: where its socket goes.
        node: where this process is.
        token: the mesh token, which routers prove.
        table: of this process, through which calls of models are passed on.
        tls: certificates for its port; None: plain.
    """

    def __init__(
        self,
        run_dir: Path,
        node: NodeSettings,
        token: bytes,
        table: rust.RoutingTable,
        tls: MeshTls | None = None,
    ) -> None:
        self._tls = tls
        self._inference = InferenceFront(table)
        self._replica_id = f"{DEPLOYMENT}#{secrets.token_hex(4)}"
        self._socket = run_dir / "builtin.sock"
        self._node = node
        self._health = HealthService(watchers_max=_HEALTH_WATCHERS_MAX)
        self._applications: frozenset[str] = frozenset()
        self._reflection = reflection_servicer((), ())
        self._file_descriptors: list[tuple[bytes, ...]] = []
        self._services: list[str] = []
        self._tensor_bytes_max = _REQUEST_BYTES_MAX
        self._server = Server(
            # Of models' messages too, until there are models.
            options=[("grpc.max_receive_message_length", _REQUEST_BYTES_MAX)],
            settings=ServerSettings(
                replica_id=self._replica_id,
                token=token,
                # Its port is there for this process alone.
                call_token=token,
                http=self._inference.http,
                status_of=lambda error, _: AioStatus.of_abort(error),
            ),
        )
        self._server.add_registered_method_handlers(INFERENCE, self._inference.handlers())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        api = RayServeApi(lambda: self._health.is_draining, lambda: self._applications)
        api_pb2_grpc.add_RayServeAPIServiceServicer_to_server(api, self._server)
        for name in REFLECTION:
            handlers = {
                "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
                    self._reflect,
                    request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
                    response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
                )
            }
            self._server.add_registered_method_handlers(name, handlers)

    async def start(self) -> None:
        """Listen on the socket and on a port of the loopback interface."""
        with contextlib.suppress(RuntimeError):  # Its path is too long: the port is enough.
            self._server.add_insecure_port(f"unix:{self._socket}")
        if self._tls is None:
            self._port = self._server.add_insecure_port(_LOOPBACK)
        else:
            self._port = self._server.add_secure_port(_LOOPBACK, self._tls.server_credentials)
        await self._server.start()

    def begin_drain(self) -> None:
        """Say NOT_SERVING from now on."""
        self._health.begin_drain()

    async def stop(self, grace_s: float) -> None:
        """End calls after ``grace_s`` and remove the socket."""
        await self._server.stop(grace_s)
        await self._inference.close()
        self._socket.unlink(missing_ok=True)

    def routes(self, views: Views) -> list[rust.DeploymentRoute]:
        """Take a new view of the mesh; return the route to this server.

        A deployment that registers one of these services by itself is left to answer it.
        """
        self._show(views)
        self._health.show(_statuses(views))
        self._applications = frozenset(key.application for key in views)
        self._inference.update(views)
        self._limit_tensors(self._inference.message_bytes_max)
        taken = {service for view in views.values() for service in view.services}
        replica = mesh_pb2.ReplicaView(
            replica_id=self._replica_id,
            node=self._node.node_id,
            zone=self._node.zone,
            endpoints=mesh_pb2.Endpoints(
                address=f"127.0.0.1:{self._port}", unix_path=str(self._socket), proves_itself=True
            ),
            max_ongoing_requests=_ONGOING_MAX,
        )
        of_mesh = mesh_pb2.DeploymentView(
            key=mesh_pb2.DeploymentKey(application=APPLICATION, name=DEPLOYMENT),
            replicas=[replica],
            max_queued_requests=_QUEUED_MAX,
            max_request_bytes=_REQUEST_BYTES_MAX,
            services=[name for name in SERVICES if name not in taken],
            request_timeout_s=_REQUEST_TIMEOUT_S,
            file_descriptors=own_files(),
        )
        methods = self._inference.services()
        of_models = mesh_pb2.DeploymentView(
            key=mesh_pb2.DeploymentKey(application=APPLICATION, name=INFERENCE_DEPLOYMENT),
            replicas=[replica],
            max_queued_requests=_QUEUED_MAX,
            max_request_bytes=_REQUEST_BYTES_MAX,
            services=methods,
            http_prefixes=self._inference.prefixes(),
            file_descriptors=[inference_file()],
        )
        return [
            rust.DeploymentRoute(of_mesh.SerializeToString()),
            rust.DeploymentRoute(of_models.SerializeToString(), methods=methods),
        ]

    def _limit_tensors(self, size_bytes: int) -> None:
        """Accept tensor messages up to the largest size that one of the deployments accepts."""
        if size_bytes != self._tensor_bytes_max:
            self._tensor_bytes_max = size_bytes
            for path in TENSOR_PATHS:
                self._server.set_receive_limit(path, size_bytes)

    def _show(self, views: Views) -> None:
        """Rebuild the reflection service if services or files have changed."""
        sources = list(dict.fromkeys(tuple(view.file_descriptors) for view in views.values()))
        named = {service for view in views.values() for service in view.services}
        services = sorted({*named, *SERVICES})
        if sources != self._file_descriptors or services != self._services:
            self._file_descriptors, self._services = sources, services
            self._reflection = reflection_servicer(services, sources)

    async def _reflect(
        self,
        requests: AsyncIterator[reflection_pb2.ServerReflectionRequest],
        context: object,
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        # Looked up for each request, so that a long stream sees later deployments.
        async for request in requests:
            answers = self._reflection.ServerReflectionInfo(_one(request), context)
            async for answer in answers:
                yield answer


def _statuses(views: Views) -> dict[str, Status]:
    """Return the health of every service: SERVING while a replica of it does."""
    now: dict[str, Status] = {}
    for view in views.values():
        status = SERVING if view.replicas else NOT_SERVING
        for service in view.services:
            # Of several deployments with one service, one that serves is enough.
            if now.get(service) != SERVING:
                now[service] = status
    return {**dict.fromkeys(SERVICES, SERVING), **now}


async def _one(
    request: reflection_pb2.ServerReflectionRequest,
) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    yield request
