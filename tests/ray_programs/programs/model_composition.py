"""Model composition: a chain, a dispatch by condition, and an ensemble."""

import asyncio

import pyserve as serve
from pyserve.handle import DeploymentHandle, DeploymentResponse


@serve.deployment
class Adder:
    def __init__(self, increment: int) -> None:
        self.increment = increment

    def __call__(self, value: int) -> int:
        return value + self.increment


@serve.deployment
class Multiplier:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    async def __call__(self, value: int) -> int:
        await asyncio.sleep(0)
        return value * self.factor


@serve.deployment
def combine(*values: int, scale: int = 1) -> int:
    return scale * sum(values)


@serve.deployment
class Ingress:
    def __init__(
        self, adder: DeploymentHandle, multiplier: DeploymentHandle, combiner: DeploymentHandle
    ) -> None:
        self._adder = adder
        self._multiplier = multiplier
        self._combiner = combiner

    async def chain(self, value: int) -> int:
        # The response of one call is the argument of the next; only the last one is awaited.
        added: DeploymentResponse = self._adder.remote(value)
        multiplied: DeploymentResponse = self._multiplier.remote(added)
        return await multiplied

    async def by_condition(self, value: int) -> int:
        model = self._adder if value % 2 else self._multiplier
        return await model.remote(value)

    async def ensemble(self, value: int) -> int:
        first, second = self._adder.remote(value), self._multiplier.remote(value)
        return await self._combiner.remote(first, second, scale=10)

    async def gather(self, values: list[int]) -> list[int]:
        return await asyncio.gather(*[self._adder.remote(value) for value in values])


app = Ingress.bind(Adder.bind(increment=1), Multiplier.bind(3), combine.bind())
