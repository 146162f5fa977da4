"""Applications behind the guarded ingress, and between guarded processes."""

import hashlib

from starlette.requests import Request

import pyserve
from pyserve.aio import ServicerContext
from pyserve.api.handles.handle import DeploymentHandle
from services.echo import echo_pb2, echo_pb2_grpc
from services.echo.service import Echo
from tests.mesh.doors.apps import Things


@pyserve.deployment
class Web:
    """Answers plain HTTP with the path that it was asked for."""

    def __init__(self, echo: DeploymentHandle) -> None:
        self.echo = echo  # Deployed with this one, and called by gRPC.

    def __call__(self, request: Request) -> str:
        return f"{request.url.scheme} {request.url.path}"


app = Web.bind(Echo.bind())


@pyserve.deployment
class Shop:
    """Answers plain HTTP, beside services with paths of their own."""

    def __init__(self, echo: DeploymentHandle, things: DeploymentHandle) -> None:
        self.others = (echo, things)

    def __call__(self, request: Request) -> str:
        return request.url.path


shop = Shop.bind(Echo.bind(), Things.bind())


@pyserve.deployment
class Named(echo_pb2_grpc.EchoServicer):
    """Says which application it is of."""

    async def Echo(
        self, request: echo_pb2.EchoRequest, context: ServicerContext
    ) -> echo_pb2.EchoReply:
        del request, context
        return echo_pb2.EchoReply(payload=pyserve.get_replica_context().app_name.encode())


@pyserve.deployment
class Counter:
    """Two applications have such a front, and a service each; one has another besides."""

    def __init__(self, *others: DeploymentHandle) -> None:
        self.others = others

    def __call__(self, request: Request) -> str:
        del request
        return pyserve.get_replica_context().app_name


till = Counter.bind(Named.bind())
store = Counter.bind(Named.bind(), Things.bind())


@pyserve.deployment
class Digest:
    """Says what it got, without sending it back."""

    def __call__(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def make(self, size_bytes: int) -> bytes:
        return b"x" * size_bytes


digest = Digest.bind()


@pyserve.deployment
class Asker:
    """Says who asks, as far as the request tells."""

    def __call__(self, request: Request) -> str:
        assert request.client is not None
        return f"{request.url.scheme} {request.client.host} {request.client.port}"


asker = Asker.bind()
