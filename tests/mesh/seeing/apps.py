"""Deployments in which there is something to see."""

from __future__ import annotations

import asyncio

import pyserve
from services.echo.service import Echo
from tests.mesh.metrics.apps import Prices, Shop

SLOW_S, FAST_S = 0.08, 0.005


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
