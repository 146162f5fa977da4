"""The deployments of these tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyserve as serve


@serve.deployment
class Model:
    def __init__(self, factor: int, *below: serve.DeploymentHandle) -> None:
        self._factor = factor
        self._below = below

    async def __call__(self, value: int) -> int:
        values = await asyncio.gather(*(each.remote(value) for each in self._below))
        return self._factor * (sum(values) if values else value)


@serve.deployment
class Combine:
    def __init__(self, *models: serve.DeploymentHandle) -> None:
        self._models = models

    async def __call__(self, value: int) -> list[int]:
        return list(await asyncio.gather(*(each.remote(value) for each in self._models)))


@serve.deployment
class Broken:
    def __init__(self) -> None:
        raise ValueError("no weights")

    def __call__(self) -> None: ...


@serve.deployment
class Streamer:
    def count(self, limit: int) -> Iterator[int]:
        yield from range(limit)

    def one(self) -> int:
        return 1

    @serve.batch(max_batch_size=1)  # type: ignore[arg-type]  # what it returns
    async def no_list(self, items: list[int]) -> int:
        return len(items)
