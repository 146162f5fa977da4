"""The ends of asynchronous iterators that users return."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any


async def close(items: AsyncIterable[Any]) -> None:
    """Close an iterator, where its kind can be closed.

    Its own clean-up belongs to the call that it answers, not to the garbage collector.
    """
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()
