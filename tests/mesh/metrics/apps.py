"""Deployments that call each other, and do all that there are metrics of."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

import pyserve
from pyserve.metrics import Counter, Gauge, Histogram

WORDS = Counter("shop_words", "Words.", tag_keys=("kind",))


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


@pyserve.continuous(budget=100)
class Countdown:
    """Takes as many steps as a request says; runs inside of another replica."""

    def admit(self, steps: int) -> list[int]:
        return [steps]

    def step(self, states: list[list[int]]) -> list[pyserve.Emit]:
        for state in states:
            state[0] -= 1
        return [pyserve.Emit(state[0]) if state[0] else pyserve.Done(0) for state in states]


@pyserve.deployment(
    max_ongoing_requests=50,
    health_check_period_s=0.2,
    autoscaling_config={"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 40},
    # The one that counts errors of predictions.
    request_router_config={"policy": "predicted"},
)
class Models:
    """Batches, steps, has two of three models, counts."""

    def __init__(self) -> None:
        self.level = Gauge("shop_level", "A level.")
        self.sizes = Histogram("shop_sizes", "Sizes.", boundaries=[1, 10])
        self.countdown: Any = Countdown()

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id: str) -> str:
        return model_id.upper()

    async def named(self) -> str:
        """Return the model of this request."""
        assert [2, 1, 0] == [value async for value in self.countdown(3)]
        return await self.model(pyserve.get_multiplexed_model_id())

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0.01)
    async def doubled(self, numbers: list[int]) -> list[int]:
        """Return twice each number."""
        WORDS.inc(len(numbers), tags={"kind": "number"})
        self.sizes.observe(len(numbers))
        self.level.set(7)
        return [2 * number for number in numbers]


@pyserve.deployment(max_ongoing_requests=1)
class Narrow:
    """Takes one call at a time, a fiftieth of a second each."""

    async def __call__(self, request: Request) -> str:
        del request
        await asyncio.sleep(0.02)
        return "done"


narrow = Narrow.bind()


@pyserve.deployment
class Everything:
    """Uses ``Models``."""

    def __init__(self, models: pyserve.DeploymentHandle) -> None:
        self.models = models

    async def __call__(self, request: Request) -> int:
        del request
        for model_id in "abca":
            await self.models.options(multiplexed_model_id=model_id).named.remote()
        answers = [self.models.doubled.remote(number) for number in range(8)]
        return sum([int(await answer) for answer in answers])


everything = Everything.bind(Models.bind())
