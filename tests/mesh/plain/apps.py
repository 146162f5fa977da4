"""Plain deployments of every shape, and a servicer with plain methods beside its RPCs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np

import pyserve
from pyserve.request import current_request
from services.echo import echo_pb2, echo_pb2_grpc


@pyserve.deployment
def shout(text: str) -> str:
    return text.upper()


@pyserve.deployment
async def spell(text: str) -> AsyncIterator[str]:
    for letter in text:
        yield letter


@pyserve.deployment
@pyserve.batch(max_batch_size=2, batch_wait_timeout_s=30.0)
async def halve(numbers: list[int]) -> list[float]:
    return [number / 2 for number in numbers]


@pyserve.deployment(
    batching_config={"max_batch_size": 4, "timeout_s": 0.5, "methods": ["score"]},
)
class Scorer:
    """Has no decorator; its ``score`` gets lists all the same."""

    async def score(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [(len(numbers), number) for number in numbers]


@pyserve.deployment(
    batching_config={"max_batch_size": 8, "timeout_s": 0.0, "allow_small_batch": False}
)
class Patient:
    """Only runs full batches."""

    async def __call__(self, numbers: list[int]) -> list[int]:
        return [len(numbers) for _ in numbers]


@pyserve.deployment
class Store:
    """Has a model from the start, and takes large arguments."""

    @pyserve.multiplexed(preload=["early"])
    async def get_model(self, model_id: str) -> str:
        return f"model {model_id}"

    async def model(self) -> str:
        model: str = await self.get_model()
        return model

    async def total(self, values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        return float(values.sum())

    async def is_aligned(self, values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
        return bool(values.flags.aligned)

    def ones(self, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.ones(count)

    async def size(self, data: bytes) -> int:
        return len(data)


@pyserve.deployment
class Clock:
    """Tells how long its caller waits."""

    async def remaining(self) -> float | None:
        request = current_request()
        return None if request is None else request.time_remaining()

    async def wait(self, path: str) -> None:
        """Wait for ever, and leave a file when that begins and another when it is cancelled."""
        Path(path).with_suffix(".begun").touch()  # a test looks for it
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            Path(path).touch()  # noqa: ASYNC240  # a test looks for it


@pyserve.deployment
class Echo(echo_pb2_grpc.EchoServicer):
    """An RPC and plain methods in one class; both call another deployment."""

    def __init__(self, clock: pyserve.DeploymentHandle[Any], *_others: object) -> None:
        self._clock = clock

    async def Echo(self, request: Any, context: Any) -> Any:
        remaining = await self._clock.remaining.remote()
        return echo_pb2.EchoReply(payload=f"{remaining}".encode())

    async def Perform(self, request: Any, context: Any) -> Any:
        await self._clock.wait.remote(request.payload.decode())
        return echo_pb2.PerformReply()

    async def plain(self, first: int, *, second: int = 2) -> list[int]:
        return [first, second]

    def fail(self) -> None:
        raise LookupError("a secret")


app = Echo.bind(
    Clock.bind(),
    shout.bind(),
    spell.bind(),
    halve.bind(),
    Scorer.bind(),
    Patient.bind(),
    Store.bind(),
)
patient = Patient.bind()
