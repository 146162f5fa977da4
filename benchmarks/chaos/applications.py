"""The applications of the chaos scenarios."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from enum import StrEnum
from pathlib import Path

import grpc

import pyserve
from services.echo.service import app as echo

WORK_S = 0.02
# Of the narrow deployment.
REPLICAS, PLACES = 2, 4


def steady() -> pyserve.Application:
    """Return services/echo with replicas that can be restarted one by one."""
    return _echo(num_replicas=3)


def narrow() -> pyserve.Application:
    """Return services/echo with few places, so that a little load is too much."""
    return _echo(num_replicas=REPLICAS, max_ongoing_requests=PLACES, max_queued_requests=50)


def _echo(**options: object) -> pyserve.Application:
    deployment: pyserve.Deployment[object] = echo.deployment.options(**options)
    return deployment.bind()


class Mood(StrEnum):
    """How a replica treats calls."""

    WELL = "well"
    FAILING = "failing"


class Numbered:
    """Returns its number, and has left a line for each time that it was constructed.

    Args:
        number: Of the deploy.
        journal: The file for those lines: name of the replica, process id, number.
    """

    def __init__(self, number: int, journal: str) -> None:
        self._number = number
        replica = pyserve.get_replica_context().replica_id
        with Path(journal).open("a", encoding="utf-8") as file:
            file.write(f"{replica} {os.getpid()} {number}\n")

    async def __call__(self) -> int:
        await asyncio.sleep(0.005)
        return self._number


def numbered(number: int, journal: Path) -> pyserve.Application:
    """Return two replicas of another version for each number."""
    deployment = pyserve.deployment(num_replicas=2)(Numbered)
    return deployment.bind(number, str(journal))


class Moody:
    """Answers, or fails every call as a replica does that has lost its database."""

    def __init__(self) -> None:
        self._mood = Mood.WELL
        self._attempts: Counter[Mood] = Counter()

    async def turn(self, mood: Mood) -> None:
        """Change the mood."""
        self._mood = mood

    async def attempts(self, mood: Mood) -> int:
        """Return how many calls have been here while the mood was so."""
        return self._attempts[mood]

    async def __call__(self) -> str:
        self._attempts[self._mood] += 1
        await asyncio.sleep(0.001)
        if self._mood is Mood.FAILING:
            raise pyserve.Abort(grpc.StatusCode.UNAVAILABLE, "not today")
        return "well"


def moody(router: dict[str, object]) -> pyserve.Application:
    """Return replicas whose calls may be sent up to five times; ``router`` changes its options."""
    deployment = pyserve.deployment(
        num_replicas=3, request_router_config={"max_attempts": 5, **router}
    )(Moody)
    return deployment.bind()
