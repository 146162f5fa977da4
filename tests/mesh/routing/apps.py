"""Deployments that say who answered, and policies for them."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pyserve


@pyserve.deployment(num_replicas=3)
class Who:
    """Answers with the replica's id."""

    async def __call__(self) -> str:
        return pyserve.get_replica_context().replica_id


@pyserve.deployment
class Front:
    """Answers plain HTTP with its version."""

    def __init__(self, version: str) -> None:
        self.version = version

    async def __call__(self, body: str = "") -> str:
        return self.version


@pyserve.deployment(graceful_shutdown_timeout_s=0)
class Shadow:
    """Notes the bodies of mirrored requests, and never answers them."""

    def __init__(self) -> None:
        self.copies: list[str] = []
        self.came = asyncio.Condition()

    async def __call__(self, request):  # type: ignore[no-untyped-def]  # a Starlette request
        assert request.headers["x-pyserve-mirror"] == "1"
        body = (await request.body()).decode()
        async with self.came:
            self.copies.append(body)
            self.came.notify_all()
        await asyncio.sleep(3600)

    async def seen(self, count: int) -> list[str]:
        """Return the copies, once there are as many."""
        async with self.came:
            await self.came.wait_for(lambda: len(self.copies) >= count)
        return self.copies


@pyserve.deployment(max_ongoing_requests=1, max_queued_requests=0)
class Held:
    """Answers when it is told to; nobody waits for it."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()

    async def __call__(self, body: str = "") -> str:
        await self._opened.wait()
        return "done"

    async def open(self) -> None:
        """Hold nobody from now on."""
        self._opened.set()


class ByName:
    """Prefers the replica at a place of the sorted list."""

    def __init__(self, place: int) -> None:
        self.place = place

    def choose(self, candidates, request):  # type: ignore[no-untyped-def]  # as users write it
        return [sorted(each.replica_id for each in candidates)[self.place]]


class BySession:
    """In the shape of Ray Serve: ranks of replicas, from an async method."""

    def initialize_state(self, places: int) -> None:
        """Take the arguments of ``request_router_kwargs``."""
        self.places = places

    async def choose_replicas(self, candidate_replicas, pending_request=None):  # type: ignore[no-untyped-def]
        ordered = sorted(candidate_replicas, key=lambda each: each.replica_id)
        await asyncio.sleep(0)
        if not pending_request.session_id:
            raise LookupError("no session")
        return [[ordered[int(pending_request.session_id) % self.places]], ordered]


class Following:
    """Has no opinion, and writes down where calls went, in whatever process it is."""

    def __init__(self, path: str) -> None:
        self._path = path

    def choose(self, candidates, request):  # type: ignore[no-untyped-def]
        return []

    def on_request_routed(self, request, replica_id, result):  # type: ignore[no-untyped-def]
        self._note("routed", replica_id, request.internal_request_id)

    def on_request_completed(self, replica_id, internal_request_id):  # type: ignore[no-untyped-def]
        self._note("completed", replica_id, internal_request_id)

    def _note(self, *words: str) -> None:
        with Path(self._path).open("a") as notes:
            notes.write(" ".join(words) + "\n")


class Nonsense:
    """Answers with something that is not a replica."""

    def choose(self, candidates, request):  # type: ignore[no-untyped-def]
        return ["somebody else"]


@pyserve.deployment(num_replicas=3)
class Reporting:
    """Says how fit it is, and who it is; answers with its replica's id."""

    def __init__(self) -> None:
        self._stats: dict[str, object] = {"fitness": 0}
        self._fails = False
        self._failures = 0

    def record_routing_stats(self) -> dict[str, object]:
        """Return the fitness, or raise."""
        if self._fails:
            self._failures += 1
            raise LookupError("the engine has no figures")
        return dict(self._stats)

    async def record_replica_metadata(self) -> dict[str, object]:
        """Return what never changes."""
        return {"name": pyserve.get_replica_context().replica_id, "pid": os.getpid()}

    async def __call__(self) -> str:
        return pyserve.get_replica_context().replica_id

    async def prefer(self, replica_id: str) -> None:
        """Say from now on that this replica is the fittest, or that it is not."""
        is_meant = replica_id == pyserve.get_replica_context().replica_id
        self._stats = {"fitness": int(is_meant)}

    async def fail(self) -> None:
        """Have no figures from now on."""
        self._fails = True

    async def failures(self) -> int:
        """Return how often there were no figures."""
        return self._failures

    async def pid(self) -> int:
        """Return the process of this replica."""
        return os.getpid()


@pyserve.deployment
class Nameless:
    """Its metadata cannot travel."""

    def record_replica_metadata(self) -> object:
        return {"engine": object()}

    async def __call__(self) -> str:
        return "never"


class Fittest:
    """Goes by a number that replicas report."""

    def choose(self, candidates, request):  # type: ignore[no-untyped-def]
        best = max(each.routing_stats["fitness"] for each in candidates)
        return [each for each in candidates if each.routing_stats["fitness"] == best]


class Hangs:
    """Does not answer until it is told to."""

    asked = 0
    may_answer = threading.Event()

    def choose(self, *_asked):  # type: ignore[no-untyped-def]
        type(self).asked += 1
        self.may_answer.wait()
        return []


class ByPid:
    """Goes by what replicas say of themselves once; the session is a number of a process."""

    def choose(self, candidates, request):  # type: ignore[no-untyped-def]
        return [
            each
            for each in candidates
            if each.replica_metadata == {"name": each.replica_id, "pid": int(request.session_id)}
        ]


@pyserve.deployment(num_replicas=3, max_ongoing_requests=20)
class Prefixes:
    """Keeps what it has worked out for the beginnings of prompts."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._held = 0
        self._opened = asyncio.Event()

    async def __call__(self, prompt: str) -> bool:
        """Return whether the beginning, up to the bar, was here before."""
        prefix, _, rest = prompt.partition("|")
        is_hit = prefix in self._kept
        self._kept.add(prefix)
        await asyncio.sleep(0.002)
        if rest == "hold":
            self._held += 1
            await self._opened.wait()
        return is_hit

    async def held(self) -> int:
        """Return how many calls are held."""
        return self._held

    async def open(self) -> None:
        """Hold nobody from now on."""
        self._opened.set()
