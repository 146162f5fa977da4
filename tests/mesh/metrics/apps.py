"""A deployment that calls another one."""

from __future__ import annotations

from starlette.requests import Request

import pyserve


@pyserve.deployment(num_replicas=2)
class Prices:
    """Knows what things cost."""

    async def of(self, name: str) -> float:
        return 0.5 * len(name)


@pyserve.deployment
class Shop:
    """Adds up."""

    def __init__(self, prices: pyserve.DeploymentHandle) -> None:
        self.prices = prices

    async def __call__(self, request: Request) -> float:
        del request
        answers = [self.prices.of.remote(name) for name in ("pear", "plum", "fig")]
        total: float = sum([await answer for answer in answers])
        return total


shop = Shop.bind(Prices.bind())
