"""The same model, which takes as many steps as a request says, in three forms."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pyserve
from benchmarks.stepping.model import RUNNING, step_s
from pyserve import Done, Emit


@dataclass(eq=False, slots=True)
class _State:
    left: int


@pyserve.deployment(max_ongoing_requests=2000)
@pyserve.continuous(max_running=RUNNING)
class Continuous:
    """A request leaves when its own steps are done."""

    def admit(self, steps: int) -> _State:
        return _State(steps)

    def step(self, states: list[_State]) -> list[Any]:
        time.sleep(step_s(len(states)))
        results: list[Any] = []
        for state in states:
            state.left -= 1
            results.append(Emit(state.left) if state.left else Done(0))
        return results


@pyserve.deployment(max_ongoing_requests=2000)
class Batched:
    """A batch takes as long as its longest request."""

    @pyserve.batch(max_batch_size=RUNNING, batch_wait_timeout_s=0.002)
    async def __call__(self, steps: list[int]) -> list[int]:
        await asyncio.to_thread(_run, steps)
        return [0] * len(steps)


@pyserve.deployment(max_ongoing_requests=2000)
class Alone:
    """One request at a time."""

    def __init__(self) -> None:
        self._free = asyncio.Lock()

    async def __call__(self, steps: int) -> int:
        async with self._free:
            await asyncio.to_thread(_run, [steps])
        return 0


def _run(steps: list[int]) -> None:
    # The states stay in the batch to its end, as the rows of a tensor do.
    for _ in range(max(steps)):
        time.sleep(step_s(len(steps)))


FORMS: dict[str, Any] = {"continuous": Continuous, "batched": Batched, "alone": Alone}
