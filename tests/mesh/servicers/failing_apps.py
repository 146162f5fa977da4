"""Services whose failures have much metadata; one says that its clients take that."""

import grpc

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc

DETAILS = bytes(range(256)) * 80  # 27 KB on the wire
_RICH = "grpc-status-details-bin"


@pyserve.deployment
class Failing(echo_pb2_grpc.EchoServicer):
    """Fails with a text and details that exceed 8 KiB."""

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:  # type: ignore[override]  # the context may be left out
        raise pyserve.Abort(grpc.StatusCode.ABORTED, "t" * 3000, ((_RICH, DETAILS),))


app = Failing.bind()
generous = Failing.options(max_client_metadata_bytes=40_000).bind()
