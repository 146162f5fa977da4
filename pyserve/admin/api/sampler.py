"""Takes snapshots of the mesh while it is watched, shared by all viewers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from pyserve.admin.api.overview import Between
from pyserve.admin.api.snapshot import MeshSnapshot
from pyserve.errors import PyserveError

INTERVAL_S = 2.0
"""Between two snapshots while the mesh is watched; people do not read faster."""

FIRST_INTERVAL_S = 1.0
"""Between the two snapshots of a single request."""

VIEWERS_MAX = 32
"""Arbitrary: more than a team has screens."""

# Outliers show only over a longer time, for which some snapshots are kept.
_KEPT_S = 60.0
KEPT_EVERY_S = 10.0


class TooManyViewers(PyserveError):
    """The largest number of viewers has been reached."""


class Sampler:
    """Takes snapshots one after the other for all viewers. For one event loop.

    Args:
        take: Takes one snapshot.
        interval_s: From one snapshot to the next while the mesh is watched.
        first_interval_s: Between the first two, for which a viewer waits.
    """

    def __init__(
        self,
        take: Callable[[], Awaitable[MeshSnapshot]],
        *,
        interval_s: float = INTERVAL_S,
        first_interval_s: float = FIRST_INTERVAL_S,
    ) -> None:
        self._take = take
        self._interval_s = interval_s
        self._first_interval_s = first_interval_s
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._latest: Between | PyserveError | None = None
        self._news = asyncio.Condition()
        self._asking: asyncio.Task[Between] | None = None

    @property
    def viewers(self) -> int:
        """The number of viewers."""
        return self._viewers

    async def watch(self) -> AsyncGenerator[Between | PyserveError, None]:
        """Yield the changes between two snapshots, or why they are unknown, repeatedly.

        A viewer that is slow skips some.

        Raises:
            TooManyViewers: At once.
        """
        if self._viewers >= VIEWERS_MAX:
            raise TooManyViewers(f"{VIEWERS_MAX} viewers watch already; close one of them")
        self._viewers += 1
        try:
            if self._task is None:
                self._task = asyncio.create_task(self._run())
            seen = self._number if self._latest is None else self._number - 1
            while True:
                async with self._news:
                    await self._news.wait_for(lambda: self._number > seen)  # noqa: B023
                seen, latest = self._number, self._latest
                assert latest is not None, "there are news"
                yield latest
        finally:
            self._viewers -= 1
            if not self._viewers and self._task is not None:
                self._task.cancel()
                self._task = self._latest = None

    async def once(self) -> Between:
        """Return the recent changes, or those of the next moment.

        Concurrent requests get the same result.

        Raises:
            PyserveError: It is not known.
        """
        if isinstance(self._latest, Between):
            return self._latest
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._on_asked)
        # A caller that goes must not cancel what the others wait for.
        return await asyncio.shield(self._asking)

    async def at_once(self) -> Between:
        """Return the current state, in which the changes between two snapshots may be empty.

        Raises:
            PyserveError: It is not known.
        """
        if isinstance(self._latest, Between):
            return self._latest
        now = await self._take()
        return Between.of(now, now, None)

    async def close(self) -> None:
        """Stop taking snapshots."""
        tasks = [task for task in (self._task, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self) -> Between:
        then = await self._take()
        await asyncio.sleep(self._first_interval_s)
        return Between.of(then, await self._take(), None)

    def _on_asked(self, task: asyncio.Task[Between]) -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # Those who still wait get it.

    async def _run(self) -> None:
        kept: deque[MeshSnapshot] = deque()
        then: MeshSnapshot | None = None
        while True:
            try:
                now = await self._take()
            except PyserveError as error:
                then = None
                await self._tell(error)
                await asyncio.sleep(self._interval_s)
                continue
            if then is None:
                kept.clear()
                await asyncio.sleep(self._first_interval_s)
            else:
                await self._tell(Between.of(then, now, _long_ago(kept, now)))
                await asyncio.sleep(self._interval_s)
            then = now
            if not kept or now.at_s - kept[-1].at_s >= KEPT_EVERY_S:
                kept.append(now)

    async def _tell(self, latest: Between | PyserveError) -> None:
        self._latest = latest
        self._number += 1
        async with self._news:
            self._news.notify_all()


def _long_ago(kept: deque[MeshSnapshot], now: MeshSnapshot) -> MeshSnapshot | None:
    """Return the oldest snapshot of the last minute, if one is old enough to compare with."""
    while kept and now.at_s - kept[0].at_s > _KEPT_S:
        kept.popleft()
    return kept[0] if kept and now.at_s - kept[0].at_s >= KEPT_EVERY_S else None
