"""A gRPC service: a plain class with the names of RPCs, one of which is ``__call__``."""

from collections.abc import Generator

import grpc

import pyserve as serve
from pyserve.grpc_util import RayServegRPCContext
from pyserve.handle import DeploymentHandle
from tests.ray_programs.programs.fruit_pb2 import FruitAmounts, FruitCosts, ModelName


@serve.deployment
class Stand:
    def __init__(self, price: float) -> None:
        self.price = price

    def __call__(self, count: int) -> float:
        return self.price * count


@serve.deployment
class FruitMarket:
    def __init__(self, apples: DeploymentHandle, oranges: DeploymentHandle) -> None:
        self.apples = apples
        self.oranges = oranges

    async def __call__(
        self, amounts: FruitAmounts, grpc_context: RayServegRPCContext
    ) -> FruitCosts:
        if amounts.apple < 0:
            grpc_context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
            grpc_context.set_details("nobody has fewer than no apples")
        else:
            grpc_context.set_details("paid")
        grpc_context.set_trailing_metadata([("apples", str(amounts.apple))])
        costs = self.apples.remote(amounts.apple), self.oranges.remote(amounts.orange)
        return FruitCosts(costs=sum([await each for each in costs]))

    @serve.multiplexed(max_num_models_per_replica=1)
    async def get_model(self, model_id: str) -> str:
        return f"loading model: {model_id}"

    async def Multiplexing(self, _message: ModelName) -> ModelName:
        return ModelName(name=await self.get_model(serve.get_multiplexed_model_id()))

    def Streaming(self, amounts: FruitAmounts) -> Generator[FruitCosts, None, None]:
        for count in range(amounts.apple):
            yield FruitCosts(costs=float(count))


app = FruitMarket.options(name="grpc-market").bind(
    Stand.options(name="apples").bind(2.0), Stand.options(name="oranges").bind(3.0)
)
