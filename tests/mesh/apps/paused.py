"""Two deployments, one of which stops at a breakpoint."""

from collections.abc import AsyncIterator

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc


@pyserve.deployment(num_replicas=2)
class Upper:
    async def __call__(self, text: str) -> str:
        breakpoint()  # what the test is about
        return f"{text.upper()} by {pyserve.get_replica_context().deployment}"


@pyserve.deployment
class Paused(echo_pb2_grpc.EchoServicer):
    def __init__(self, upper: pyserve.DeploymentHandle) -> None:
        self._upper = upper

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        text = await self._upper.remote(request.payload.decode())
        name = pyserve.get_replica_context().deployment
        return echo_pb2.EchoReply(payload=f"{text}, {name}".encode())

    def Perform(self, request: echo_pb2.PerformRequest) -> echo_pb2.PerformReply:
        facts = echo_pb2.CallFacts(replica_id=pyserve.get_replica_context().replica_id)
        return echo_pb2.PerformReply(payload=request.payload, facts=facts)

    async def EchoStream(
        self, request: echo_pb2.StreamRequest
    ) -> AsyncIterator[echo_pb2.EchoReply]:
        for _ in range(request.messages):
            name = pyserve.get_replica_context().deployment
            yield echo_pb2.EchoReply(payload=name.encode())


app = Paused.bind(Upper.bind())
