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


@serve.deployment
class Tuned:
    def __init__(self) -> None:
        self._calls = ["constructed"]
        self._config: object = None

    def reconfigure(self, config: dict[str, object]) -> None:
        self._calls.append(f"reconfigured {config['threshold']}")
        if config["threshold"] == "bad":
            raise ValueError("a threshold is a number")
        self._config = config

    def warmup(self) -> None:
        self._calls.append("warmed up")

    def __call__(self) -> tuple[list[str], object]:
        return self._calls, self._config


@serve.deployment
class TunedLater:
    def __init__(self) -> None:
        self._threshold = 0
        self._id = id(self)

    async def reconfigure(self, config: dict[str, int]) -> None:
        await asyncio.sleep(0)
        self._threshold = config["threshold"]

    async def __call__(self) -> tuple[str, int]:
        return serve.get_replica_context().replica_id + str(self._id), self._threshold


@serve.deployment
class Stubborn:
    """Takes only the configuration on that it was made with."""

    def __init__(self) -> None:
        self._id = id(self)
        self._calls = 0

    def reconfigure(self, config: dict[str, int]) -> None:
        self._calls += 1
        if self._calls > 1:
            raise ValueError("not again")

    async def __call__(self) -> tuple[str, int]:
        return serve.get_replica_context().replica_id + str(self._id), self._calls
