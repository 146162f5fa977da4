"""Applications for ``pyserve run``: services/echo with options, and compressing."""

import grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc
from services.echo.service import Echo
from tests.contract.foreign.compressing import CompressOnDemand


def echo(options: dict[str, object]) -> pyserve.Application:
    """Return services/echo with options for its deployment."""
    application: pyserve.Application = Echo.options(**options).bind()
    return application


def compressing(_arguments: dict[str, object]) -> pyserve.Application:
    """Return services/echo, which answers compressed where a call asks for it."""
    application: pyserve.Application = Echo.options(interceptors=[CompressOnDemand()]).bind()
    return application


@pyserve.deployment
class Aborting(echo_pb2_grpc.EchoServicer):
    """Ends its calls by ``pyserve.Abort``."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        metadata = (("echo-trailing-why", "because"),)
        raise pyserve.Abort(grpc.StatusCode.ABORTED, request.payload.decode(), metadata)


aborting = Aborting.bind()
