"""Calls whose time goes to one thing, which everybody who reads this knows."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request

import pyserve

WINDOW_S = LOAD_S = CHILD_S = SLOW_S = 0.4
# A loop that was idle is looked at each second only.
HELD_S = 4.0


@pyserve.deployment(max_ongoing_requests=1)
class Narrow:
    """Takes one call at a time."""

    async def __call__(self, request: Request) -> str:
        await asyncio.sleep(float(request.query_params["time_s"]))
        return "narrow"


@pyserve.deployment(num_replicas=3)
class Uneven:
    """One of its replicas is slow."""

    def __init__(self) -> None:
        self.time_s = SLOW_S if pyserve.get_replica_context().rank.rank == 0 else 0.01

    async def __call__(self, request: Request) -> str:
        del request
        await asyncio.sleep(self.time_s)
        return "slow" if self.time_s == SLOW_S else "fast"


@pyserve.deployment
class Batched:
    """Waits for others who never come."""

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=WINDOW_S)
    async def price(self, names: list[str]) -> list[float]:
        return [0.5 * len(name) for name in names]

    async def __call__(self, request: Request) -> float:
        del request
        return await self.price("pear")


@pyserve.deployment
class Multiplexed:
    """Loads models, slowly."""

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def model(self, name: str) -> str:
        await asyncio.sleep(LOAD_S)
        return name

    async def __call__(self, request: Request) -> str:
        del request
        return await self.model(pyserve.get_multiplexed_model_id())


@pyserve.deployment
class Child:
    """Takes its time."""

    async def answer(self, *, raises: bool) -> str:
        if raises:
            raise ValueError
        await asyncio.sleep(CHILD_S)
        return "child"


@pyserve.deployment
class Parent:
    """Does nothing but to ask its child."""

    def __init__(self, child: pyserve.DeploymentHandle) -> None:
        self.child = child

    async def __call__(self, request: Request) -> str:
        answer: str = await self.child.answer.remote(raises="raises" in request.query_params)
        return answer


@pyserve.deployment
class Blocking:
    """Does not let go of its event loop."""

    async def __call__(self, request: Request) -> str:
        del request
        time.sleep(HELD_S)  # noqa: ASYNC251  # the fault that is staged
        return "blocking"


narrow = Narrow.bind()
uneven = Uneven.bind()
batched = Batched.bind()
multiplexed = Multiplexed.bind()
parent = Parent.bind(Child.bind())
blocking = Blocking.bind()
