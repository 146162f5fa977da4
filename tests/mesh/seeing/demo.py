"""A small shop and its models, with something to see on each page."""

from __future__ import annotations

import asyncio
import random

from starlette.requests import Request

import pyserve
from services.echo.service import Echo


@pyserve.deployment(num_replicas=3)
class Prices:
    """Prices come in batches; one replica is slow."""

    def __init__(self) -> None:
        self.time_s = 0.05 if pyserve.get_replica_context().rank.rank == 0 else 0.004

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.004)
    async def of(self, names: list[str]) -> list[float]:
        await asyncio.sleep(self.time_s)
        return [0.5 * len(name) for name in names]


@pyserve.deployment(num_replicas=2)
class Stock:
    """Fails now and then."""

    async def has(self, name: str) -> bool:
        await asyncio.sleep(random.uniform(0.002, 0.006))
        if random.random() < 0.01:
            raise RuntimeError(f"nobody knows where the {name} are")
        return True


@pyserve.deployment(num_replicas=2)
class Shop:
    """Asks both."""

    def __init__(self, prices: pyserve.DeploymentHandle, stock: pyserve.DeploymentHandle) -> None:
        self.prices, self.stock = prices, stock

    async def __call__(self, request: Request) -> float:
        del request
        names = ("pear", "plum", "fig")
        answers = [self.prices.of.remote(name) for name in names]
        await self.stock.has.remote(random.choice(names))
        total: float = sum([await answer for answer in answers])
        return total


@pyserve.deployment(
    autoscaling_config={"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 2}
)
class Vision:
    """Has several models in memory."""

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def model(self, name: str) -> str:
        await asyncio.sleep(0.2)
        return name

    async def __call__(self, request: Request) -> str:
        del request
        found = await self.model(pyserve.get_multiplexed_model_id())
        await asyncio.sleep(0.03)
        return found


shop = Shop.bind(Prices.bind(), Stock.bind())
vision = Vision.bind()
echo = Echo.bind()
