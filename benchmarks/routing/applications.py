"""What the router benchmarks deploy: sleepers behind callers, an ensemble, no-ops, a maze."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from typing import Any

import pyserve
from pyserve import DeploymentHandle

CAP_S = 10.0
MAZE = 10
_KEPT = 20
_HIT_S, _MISS_S = 0.005, 0.05
_DEPTH_MAX = 5


class Sleeper:
    """Sleeps for an exponential time, and knows how busy it was."""

    def __init__(self, mean_s: float, limit: int) -> None:
        self._mean_s = mean_s
        self._limit = limit
        self._random = random.Random()
        self._ongoing = 0
        self.reset()

    def reset(self) -> None:
        """Begin to measure."""
        self._since = self._changed = time.monotonic()
        self._busy_s = 0.0

    def utilisation(self) -> float:
        """Return the share of its places that were taken since ``reset``."""
        self._note(0)
        return self._busy_s / self._limit / (self._changed - self._since)

    async def __call__(self) -> None:
        self._note(1)
        try:
            await asyncio.sleep(min(CAP_S, self._random.expovariate(1 / self._mean_s)))
        finally:
            self._note(-1)

    def _note(self, more: int) -> None:
        now = time.monotonic()
        self._busy_s += self._ongoing * (now - self._changed)
        self._changed = now
        self._ongoing += more


class Caller:
    """Passes each call on."""

    def __init__(self, child: DeploymentHandle) -> None:
        self._child = child

    async def __call__(self) -> None:
        await self._child.remote()

    async def reset(self) -> None:
        """Let all children begin to measure."""
        await self._child.broadcast("reset")

    async def utilisations(self) -> list[float]:
        """Return the children's utilisations."""
        return list(await self._child.broadcast("utilisation"))


def sleepers(replicas: int, mean_s: float, policy: str) -> Any:
    """Return the application of the router's micro-benchmark: as many callers as sleepers."""
    limit = 2
    child = pyserve.deployment(
        num_replicas=replicas,
        max_ongoing_requests=limit,
        request_router_config={"policy": policy},
    )(Sleeper)
    caller = pyserve.deployment(num_replicas=replicas, max_ongoing_requests=5)(Caller)
    return caller.bind(child.bind(mean_s, limit))


class Cached:
    """Keeps the sessions that it was asked for last; a call of another takes ten times as long."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, None] = OrderedDict()

    async def __call__(self, session: str) -> bool:
        """Return whether the session was kept."""
        is_kept = session in self._kept
        self._kept[session] = None
        self._kept.move_to_end(session)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        await asyncio.sleep(_HIT_S if is_kept else _MISS_S)
        return is_kept


def caches(load_bound: float) -> Any:
    """Return six replicas with caches, and calls that go where their sessions belong."""
    config = {"policy": "consistent_hash", "load_bound": load_bound}
    child = pyserve.deployment(
        num_replicas=6, max_ongoing_requests=100, request_router_config=config
    )(Cached)
    return child.bind()


class Member:
    """One node of the ensemble."""

    async def __call__(self, number: int) -> int:
        await asyncio.sleep(0.01)
        return number


class Ensemble:
    """Asks all members at once and adds up."""

    def __init__(self, *members: DeploymentHandle) -> None:
        self._members = members

    async def __call__(self, number: int) -> int:
        return sum(await asyncio.gather(*(member.remote(number) for member in self._members)))


def ensemble() -> Any:
    """Return an ensemble of ten."""
    members = [pyserve.deployment(name=f"Member{number}")(Member) for number in range(10)]
    return pyserve.deployment(Ensemble).bind(*(member.bind() for member in members))


class Noop:
    """Answers."""

    async def __call__(self) -> str:
        return ""


def noops(replicas: int) -> Any:
    """Return replicas that do nothing."""
    return pyserve.deployment(num_replicas=replicas, max_ongoing_requests=100)(Noop).bind()


class Room:
    """A deployment of the maze: goes on to a random other, up to five deep."""

    async def __call__(self, depth: int, seed: int) -> int:
        if depth >= _DEPTH_MAX:
            return depth
        draw = random.Random(seed)
        if draw.random() < 0.2:
            return depth
        name = f"Room{draw.randrange(MAZE)}"
        other = pyserve.get_deployment_handle(name, "default")
        return int(await other.remote(depth + 1, draw.getrandbits(30)))


class Door:
    """Lets callers into the maze; holds its rooms so that they are deployed."""

    def __init__(self, *rooms: DeploymentHandle) -> None:
        self._rooms = rooms

    async def __call__(self, seed: int) -> int:
        return int(await self._rooms[seed % len(self._rooms)].remote(0, seed))


def maze(replicas: int) -> Any:
    """Return ten deployments that call each other."""
    rooms = [
        pyserve.deployment(name=f"Room{number}", num_replicas=replicas)(Room)
        for number in range(MAZE)
    ]
    return pyserve.deployment(num_replicas=2)(Door).bind(*(room.bind() for room in rooms))
