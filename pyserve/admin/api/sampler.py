"""Looks at the mesh while somebody watches, once for all of them, and not otherwise."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from pyserve.admin.api.overview import Between
from pyserve.admin.api.snapshot import MeshSnapshot
from pyserve.errors import PyserveError

INTERVAL_S = 2.0
"""Between two looks while somebody watches; a person reads no faster."""

FIRST_INTERVAL_S = 1.0
"""Between the two looks of somebody who asks once."""

VIEWERS_MAX = 32
"""Arbitrary: more than a team has screens."""

# Which replica is an outlier shows over a longer time, of which some looks are kept.
_KEPT_S = 60.0
KEPT_EVERY_S = 10.0


class TooManyViewers(PyserveError):
    """As many watch already as may."""


class Sampler:
    """Takes looks in turn for all viewers. For one event loop.

    Args:
        take: Takes one look.
        interval_s: From one look to the next while somebody watches.
        first_interval_s: Between the first two, which somebody waits for.
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
        """How many watch."""
        return self._viewers

    async def watch(self) -> AsyncGenerator[Between | PyserveError, None]:
        """Yield what happened between two looks, or why that cannot be said, again and again.

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
        """Return what happened lately, or happens within a moment.

        Who asks while others ask gets what they get.

        Raises:
            PyserveError: It cannot be said.
        """
        if isinstance(self._latest, Between):
            return self._latest
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._on_asked)
        # One who goes leaves the others what they wait for.
        return await asyncio.shield(self._asking)

    async def at_once(self) -> Between:
        """Return what is known now, of which what happened between two looks may be nothing.

        Raises:
            PyserveError: It cannot be said.
        """
        if isinstance(self._latest, Between):
            return self._latest
        now = await self._take()
        return Between.of(now, now, None)

    async def close(self) -> None:
        """Look no more."""
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
            task.exception()  # Whoever asked has it, if anybody still waits.

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
    """Return the oldest look of the last minute, if there is one that is old enough to tell."""
    while kept and now.at_s - kept[0].at_s > _KEPT_S:
        kept.popleft()
    return kept[0] if kept and now.at_s - kept[0].at_s >= KEPT_EVERY_S else None
