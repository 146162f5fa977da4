"""Deployments in which there is something to see."""

from __future__ import annotations

import asyncio
import os

from starlette.requests import Request

import pyserve
from services.echo.service import Echo
from tests.mesh.metrics.apps import Prices, Shop

SLOW_S, FAST_S = 0.4, 0.025


@pyserve.deployment(num_replicas=3)
class Uneven:
    """One of its replicas takes sixteen times as long as the others."""

    def __init__(self) -> None:
        rank = pyserve.get_replica_context().rank
        self.time_s = SLOW_S if rank.rank == 0 else FAST_S

    async def __call__(self, request: object) -> str:
        del request
        await asyncio.sleep(self.time_s)
        return pyserve.get_replica_context().replica_id


uneven = Uneven.bind()
shop = Shop.bind(Prices.bind())
echo = Echo.bind()


@pyserve.deployment(
    autoscaling_config={"max_replicas": 2, "target_ongoing_requests": 1, "upscale_delay_s": 0.0}
)
class Memory:
    """Answers with its process, once it has the model that the call names."""

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def get(self, model_id: str) -> str:
        await asyncio.sleep(0.01)  # A load of no time could not be told from none.
        return model_id

    async def __call__(self, request: Request) -> int:
        if model_id := pyserve.get_multiplexed_model_id():
            await self.get(model_id)
        await asyncio.sleep(float(request.query_params.get("for", 0)))
        return os.getpid()


memory = Memory.bind()
