"""Deployments that say who answered, and policies for them."""

from __future__ import annotations

import asyncio
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


@pyserve.deployment
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
    """Answers with what is no replica."""

    def choose(self, candidates, request):  # type: ignore[no-untyped-def]
        return ["somebody else"]


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
