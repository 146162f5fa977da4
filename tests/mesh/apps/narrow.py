"""One replica with two places, and three to wait."""

from __future__ import annotations

import asyncio

import pyserve


@pyserve.deployment(
    max_ongoing_requests=2, max_queued_requests=3, backpressure_config={"retry_after_s": 7}
)
class Narrow:
    """Answers at once, or when it is opened."""

    def __init__(self) -> None:
        self._held = 0
        self._opened = asyncio.Event()

    async def __call__(self, what: str = "") -> str:
        if what == "hold":
            self._held += 1
            await self._opened.wait()
        return "done"

    async def held(self) -> int:
        """Return how many calls have been held."""
        return self._held

    async def open(self) -> None:
        """Hold nobody from now on."""
        self._opened.set()


app = Narrow.bind()
