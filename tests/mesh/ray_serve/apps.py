"""The deployments of these tests."""

from __future__ import annotations

import asyncio

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
