"""What is called: replicas that take as long as they are told, each style in its own way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pyserve
from benchmarks.mix_changes.cases import BATCH_SIZE, BATCH_WINDOW_S, Case

DEPLOYMENT = "Worker"


class Awaits:
    """Works on all calls at once."""

    async def __call__(self, ms: float) -> float:
        await asyncio.sleep(ms / 1e3)
        return ms


class Blocks:
    """Holds its event loop, so that it works on one call after the other."""

    async def __call__(self, ms: float) -> float:
        time.sleep(ms / 1e3)  # noqa: ASYNC251  # the style is to block
        return ms


class Threads:
    """Works on each call in a thread."""

    def __call__(self, ms: float) -> float:
        time.sleep(ms / 1e3)
        return ms


class Bounded:
    """Takes more calls than it works on."""

    def __init__(self, permits: int) -> None:
        self._permits = asyncio.Semaphore(permits)

    async def __call__(self, ms: float) -> float:
        async with self._permits:
            await asyncio.sleep(ms / 1e3)
        return ms


class Batches:
    """Works on batches, each for as long as its longest call."""

    @pyserve.batch(max_batch_size=BATCH_SIZE, batch_wait_timeout_s=BATCH_WINDOW_S)
    async def __call__(self, ms: list[float]) -> list[float]:
        await asyncio.sleep(max(ms) / 1e3)
        return ms


_CLASSES: dict[str, type] = {
    "awaits": Awaits,
    "blocks": Blocks,
    "threads": Threads,
    "bounded": Bounded,
    "batches": Batches,
}


def application(case: Case, policy: str) -> Any:
    """Return the application of a case, routed by a policy."""
    deployment: Any = pyserve.deployment(
        name=DEPLOYMENT,
        num_replicas=case.replicas,
        max_ongoing_requests=case.limit,
        request_router_config={"policy": policy},
        # Nobody waits for the calls that a play has left behind.
        graceful_shutdown_timeout_s=0.1,
    )(_CLASSES[case.style])
    return deployment.bind(*((case.permits,) if case.style == "bounded" else ()))
