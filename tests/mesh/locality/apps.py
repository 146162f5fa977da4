"""Deployments that say on which node they answered; their replicas run on several."""

from __future__ import annotations

import asyncio
import os

import pyserve
from services.echo.service import app as echo


def _node() -> str:
    return os.environ["PYSERVE_NODE_ID"]


@pyserve.deployment(max_ongoing_requests=2)
class Placed:
    """Answers at once, or when it is told to."""

    def __init__(self, *_bound: object) -> None:
        self._opened = asyncio.Event()

    async def __call__(self, what: str = "") -> str:
        if what == "hold":
            await self._opened.wait()
        return _node()

    async def open(self) -> None:
        """Let go of those that are held now."""
        self._opened.set()
        self._opened = asyncio.Event()


class Sequential:
    """Works on one call after the other, however many it has."""

    def __init__(self, work_s: float) -> None:
        self._work_s = work_s
        self._free = asyncio.Lock()

    async def __call__(self) -> str:
        async with self._free:
            await asyncio.sleep(self._work_s)
        return _node()


def _sequential(name: str, policy: str) -> pyserve.Application:
    deployment = pyserve.deployment(
        name=name,
        max_ongoing_requests=50,
        request_router_config={"policy": policy, "prefer_local_node": True},
    )(Sequential)
    return deployment.bind(0.01)


alone = Placed.bind()
app = Placed.bind(_sequential("Predicting", "predicted"), _sequential("Counting", "p2c"), echo)
