"""The services that the ingress answers itself: health and reflection (v1 and v1alpha).

They run on a server behind the same routing table as every deployment, as application
``pyserve``, so the native listener needs no second way of answering.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from pyserve import _router
from pyserve.aio import Server, ServerSettings
from pyserve.config import NodeSettings
from pyserve.ingress.descriptors import REFLECTION_V1, REFLECTION_V1ALPHA, build_pool
from pyserve.ingress.watcher import Views

APPLICATION = "pyserve"
DEPLOYMENT = "Builtin"
HEALTH = "grpc.health.v1.Health"
REFLECTION = tuple(f"{name}.ServerReflection" for name in (REFLECTION_V1, REFLECTION_V1ALPHA))

_ONGOING_MAX = 1000
_QUEUED_MAX = 1000
# Requests of both services hold a name.
_REQUEST_BYTES_MAX = 64 * 1024
_LOOPBACK = "127.0.0.1:0"


class BuiltinServices:
    """The server of health and reflection, and the route that leads to it.

    Args:
        run_dir: where its socket goes.
        node: where this process is.
        token: the mesh token, which routers prove.
    """

    def __init__(self, run_dir: Path, node: NodeSettings, token: bytes) -> None:
        self._replica_id = f"{DEPLOYMENT}#{secrets.token_hex(4)}"
        self._socket = run_dir / "builtin.sock"
        self._node = node
        self._health = health_aio.HealthServicer()
        self._reflection = reflection_aio.ReflectionServicer((), pool=build_pool(()))
        self._file_descriptors: frozenset[bytes] = frozenset()
        self._services: list[str] = []
        self._statuses: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = Server(settings=ServerSettings(replica_id=self._replica_id, token=token))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
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
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._port = self._server.add_insecure_port(_LOOPBACK)
        await self._server.start()

    def begin_drain(self) -> None:
        """Say NOT_SERVING from now on."""
        self._spawn(self._health.enter_graceful_shutdown())

    async def stop(self, grace_s: float) -> None:
        """End calls after ``grace_s`` and remove the socket."""
        await self._server.stop(grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.unlink(missing_ok=True)

    def routes(self, views: Views) -> list[_router.DeploymentRoute]:
        """Take a new view of the mesh; return the route to this server.

        A deployment that registers one of these services by itself is left to answer it.
        """
        self._show(views)
        self._report(views)
        taken = {service for view in views.values() for service in view.services}
        replica = _router.ReplicaRoute(
            replica_id=self._replica_id,
            node=self._node.node_id,
            zone=self._node.zone,
            address=f"127.0.0.1:{self._port}",
            unix_path=str(self._socket),
            max_ongoing_requests=_ONGOING_MAX,
        )
        return [
            _router.DeploymentRoute(
                application=APPLICATION,
                deployment=DEPLOYMENT,
                services={name: None for name in (HEALTH, *REFLECTION) if name not in taken},
                replicas=[replica],
                max_queued_requests=_QUEUED_MAX,
                request_timeout_s=None,
                max_request_bytes=_REQUEST_BYTES_MAX,
            )
        ]

    def _show(self, views: Views) -> None:
        """Build reflection anew if services or files have changed."""
        files = [file for view in views.values() for file in view.file_descriptors]
        named = {service for view in views.values() for service in view.services}
        services = sorted({*named, HEALTH, *REFLECTION})
        if frozenset(files) != self._file_descriptors or services != self._services:
            self._file_descriptors, self._services = frozenset(files), services
            self._reflection = reflection_aio.ReflectionServicer(services, pool=build_pool(files))

    def _report(self, views: Views) -> None:
        """Set the health of every service: SERVING while a replica of it does."""
        serving = health_pb2.HealthCheckResponse.SERVING
        now = dict.fromkeys(self._statuses, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        for view in views.values():
            status = serving if view.replicas else health_pb2.HealthCheckResponse.NOT_SERVING
            for service in view.services:
                now[service] = max(now.get(service, 0), status, key=lambda item: item == serving)
        for service in (HEALTH, *REFLECTION):
            now.setdefault(service, serving)
        for service, status in now.items():
            if self._statuses.get(service) != status:
                self._spawn(self._health.set(service, status))
        self._statuses = now

    async def _reflect(
        self,
        requests: AsyncIterator[reflection_pb2.ServerReflectionRequest],
        context: object,
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        # Looked up for each request, so that a long stream sees what is deployed meanwhile.
        async for request in requests:
            answers = self._reflection.ServerReflectionInfo(_one(request), context)
            async for answer in answers:
                yield answer

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _one(
    request: reflection_pb2.ServerReflectionRequest,
) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    yield request
