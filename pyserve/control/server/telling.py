"""Delays a status until routers know what it says."""

from __future__ import annotations

import asyncio
import contextlib

from pyserve.control.controller import Controller

# Routers know it within some 30 ms; one that hangs must not hold the status up.
_TOLD_WAIT_S = 0.25


async def told(controller: Controller) -> None:
    """Wait until the ingresses know the current views, for a moment at most.

    A program that reads that a new version serves may call at once, and must not meet an old one.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TOLD_WAIT_S):
            await controller.published()
