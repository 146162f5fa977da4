"""The deployments of these tests."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyserve as serve
from pyserve.schema import ReplicaRank
from tests.support.waiting import wait_until

# Longer than a call takes on a busy machine.
_HOLD_S = 2.0


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

    @serve.batch(max_batch_size=1)  # type: ignore[arg-type, type-var]  # what it returns
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
class Ranked:
    """Takes its rank on with the configuration."""

    def __init__(self) -> None:
        self._taken: list[tuple[str, int]] = []

    def reconfigure(self, config: str, rank: ReplicaRank) -> None:
        self._taken.append((config, rank.rank))

    def __call__(self) -> list[tuple[str, int]]:
        return self._taken


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


@serve.deployment(max_constructor_retry_count=1)
class Unwell:
    """Cannot work, and says so."""

    def check_health(self) -> None:
        raise ValueError("the disk of the weights is gone")


@serve.deployment
class Clock:
    """Tells when it was called."""

    def __init__(self) -> None:
        self.called: list[float] = []

    async def note(self) -> float:
        self.called.append(time.monotonic())
        return self.called[-1]

    async def last(self) -> float:
        return self.called[-1]


@serve.deployment
class Holding:
    """Holds its loop after it has called."""

    def __init__(self, clock: serve.DeploymentHandle) -> None:
        self.clock = clock

    async def hold(self) -> float:
        begun = time.monotonic()
        response = self.clock.note.remote()
        time.sleep(_HOLD_S)  # noqa: ASYNC251  # what user code does
        return float(await response) - begun

    async def forget(self) -> float:
        begun = time.monotonic()
        response = self.clock.note.remote()
        await asyncio.sleep(_HOLD_S)
        called = float(await self.clock.last.remote()) - begun
        await response
        return called


@serve.deployment
class Flavoured:
    """Imports what its runtime_env brings."""

    def __call__(self, module: str) -> tuple[str, str, str | None]:
        found = importlib.import_module(module)
        return found.FLAVOUR, str(Path.cwd()), os.environ.get("FLAVOUR")


@serve.deployment
class Returning:
    """Calls another deployment when it is let go, however late that is."""

    def __init__(self, below: serve.DeploymentHandle) -> None:
        self._below = below

    def __call__(self, begun: str, release: str) -> int:
        Path(begun).touch()
        wait_until(Path(release).exists)
        answer: int = self._below.remote(1).result(timeout_s=30)
        return answer


@serve.deployment
class Turnstile:
    """Holds calls until a file is there, writes log records, and may fall ill."""

    def __init__(self) -> None:
        self._is_ill = False
        self._lock = threading.Lock()
        self._held = self._held_max = 0

    def hold(self, gate: str) -> int:
        """Return how many were held at once at most."""
        with self._lock:
            self._held += 1
            self._held_max = max(self._held_max, self._held)
        with Path(gate).with_name("begun").open("a", encoding="utf-8") as file:
            file.write("begun\n")
        wait_until(Path(gate).exists, 60)
        with self._lock:
            self._held -= 1
        return self._held_max

    def log(self, level: str, text: str) -> None:
        logging.getLogger("shop").log(logging.getLevelNamesMapping()[level.upper()], "%s", text)

    def fall_ill(self) -> None:
        self._is_ill = True

    def check_health(self) -> None:
        if self._is_ill:
            raise ValueError("ill")


@serve.deployment
class Deployer:
    """Deploys, asks and deletes from within."""

    def deploy(self, name: str, factor: int) -> int:
        handle = serve.run(Model.bind(factor), name=name, route_prefix=None)
        result: int = handle.remote(21).result(timeout_s=30)
        return result

    async def deploy_beside(self, name: str, factor: int) -> int:
        handle = await asyncio.to_thread(
            serve.run, Model.bind(factor), name=name, route_prefix=None
        )
        result: int = await handle.remote(21)
        return result

    def names(self) -> list[str]:
        return sorted(serve.status().applications)

    def delete(self, name: str) -> None:
        serve.delete(name)


@serve.deployment
class DeploysFirst:
    """Brings what it needs up by itself, holding its loop meanwhile."""

    def __init__(self, name: str) -> None:
        self._below = serve.run(Model.bind(5), name=name, route_prefix=None)

    async def __call__(self, value: int) -> int:
        result: int = await self._below.remote(value)
        return result


@serve.deployment
class Constructed:
    """Is constructed when a file is there, and says what is in it, or raises."""

    def __init__(self, told: str) -> None:
        wait_until(lambda: Path(told).exists() and Path(told).read_text(), 60)
        self._said = Path(told).read_text()
        if self._said == "raise":
            raise ValueError("as it was told")

    def __call__(self) -> str:
        return self._said


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        said = serve.get_replica_context().servable_object.said.encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said})


@serve.deployment
@serve.ingress(_answer)
class ConstructedWeb:
    """The same as a web application."""

    def __init__(self, told: str) -> None:
        wait_until(lambda: Path(told).exists() and Path(told).read_text(), 60)
        self.said = Path(told).read_text()
