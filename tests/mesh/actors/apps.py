"""A deployment with a helper that its replicas share."""

from __future__ import annotations

import os
import time
from typing import Any

import pyserve
from pyserve.config import DeploymentActorConfig


class Counter:
    """Not made for several threads, as Ray's actors need not be.

    Args:
        start: What it counts from.
    """

    def __init__(self, start: int) -> None:
        self._value = start
        self._is_busy = False

    def add(self, number: int) -> int:
        """Add; fails where another call is under way."""
        assert not self._is_busy
        self._is_busy = True
        value = self._value
        time.sleep(0.001)
        self._value = value + number
        self._is_busy = False
        return self._value

    def pid(self) -> int:
        """Return where it lives."""
        return os.getpid()


@pyserve.deployment(
    num_replicas=2,
    deployment_actors=[
        DeploymentActorConfig(name="counter", actor_class=Counter, init_kwargs={"start": 100})
    ],
)
class Shop:
    """Counts at its helper."""

    def __init__(self) -> None:
        self._counter: Any = pyserve.get_deployment_actor("counter")

    async def add(self, number: int) -> tuple[int, str]:
        """Return what there is now, and which replica has asked."""
        replica = pyserve.get_replica_context().replica_id
        return await self._counter.add.remote(number), str(replica)

    async def helper_pid(self) -> int:
        """Return where the helper lives."""
        return int(await self._counter.pid.remote())

    async def ask_for(self, name: str) -> str:
        """Return the error for a helper that does not exist."""
        try:
            pyserve.get_deployment_actor(name)
        except ValueError as error:
            return str(error)
        return ""


app = Shop.bind()
