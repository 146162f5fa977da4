"""A deployment with the name of its service, and one that calls it by a handle."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pyserve
from tests.ray_programs.programs import fruit_pb2, fruit_pb2_grpc


@pyserve.deployment(num_replicas=2)
class FruitService(fruit_pb2_grpc.FruitServiceServicer):
    async def Multiplexing(self, request: fruit_pb2.ModelName) -> fruit_pb2.ModelName:
        return fruit_pb2.ModelName(name=request.name.upper())

    async def Streaming(
        self, request: fruit_pb2.FruitAmounts
    ) -> AsyncIterator[fruit_pb2.FruitCosts]:
        for cost in range(request.apple):
            yield fruit_pb2.FruitCosts(costs=cost)

    async def shout(self, text: str) -> str:
        return text.upper()


@pyserve.deployment
class Front:
    def __init__(self, fruit: pyserve.DeploymentHandle) -> None:
        self._fruit = fruit

    async def __call__(self, text: str) -> str:
        reply = await self._fruit.Multiplexing.remote(fruit_pb2.ModelName(name=text))
        costs = self._fruit.options(stream=True).Streaming.remote(fruit_pb2.FruitAmounts(apple=3))
        total = sum([each.costs async for each in costs])
        return f"{reply.name} {total:g} {await self._fruit.shout.remote('b')}"


app = Front.bind(FruitService.bind())
