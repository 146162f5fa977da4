"""Deployments that load models, and report where those are, or that one does not exist."""

from collections.abc import AsyncIterator

import pyserve
from services.echo import echo_pb2, echo_pb2_grpc


@pyserve.deployment(num_replicas=2)
class Models:
    def __init__(self) -> None:
        self.loads: list[str] = []

    @pyserve.multiplexed(max_num_models_per_replica=2, preload=["warm"])
    async def get_model(self, model_id: str) -> str:
        self.loads.append(model_id)
        return f"model {model_id}"

    async def __call__(self) -> tuple[str, str]:
        """Return the model of the call and the replica."""
        model = await self.get_model(pyserve.get_multiplexed_model_id())
        return model, pyserve.get_replica_context().replica_id

    async def stream(self) -> AsyncIterator[str]:
        for _ in range(2):
            yield await self.get_model()

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=1.0)
    async def together(self, items: list[int]) -> list[tuple[int, str, int]]:
        model = await self.get_model()
        return [(item, model, len(items)) for item in items]

    async def loaded(self) -> list[str]:
        """Return the ids in the order of their loads."""
        return self.loads


_ROWS = {"de-en": "Deutsch"}


@pyserve.deployment
class Named(echo_pb2_grpc.EchoServicer):
    """Knows one model, and says so over each door."""

    @pyserve.multiplexed
    async def get_model(self, model_id: str) -> str:
        return _ROWS[model_id]

    async def Echo(self, request: echo_pb2.EchoRequest) -> echo_pb2.EchoReply:
        del request
        return echo_pb2.EchoReply(payload=(await self.get_model()).encode())

    async def __call__(self) -> str:
        return await self.get_model()


named = Named.bind()
