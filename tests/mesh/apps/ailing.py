"""A deployment that is ill from its first call on."""

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc


@pyserve.deployment(health_check_period_s=0.05, graceful_shutdown_timeout_s=1.0)
class Ailing(echo_pb2_grpc.EchoServicer):
    def __init__(self) -> None:
        self._ill = False

    async def Echo(self, _request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        self._ill = True
        return echo_pb2.EchoReply()

    async def check_health(self) -> None:
        if self._ill:
            raise RuntimeError("ill")


app = Ailing.bind()
