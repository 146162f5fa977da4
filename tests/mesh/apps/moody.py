"""Replicas of which one can be told to fail every call."""

from __future__ import annotations

import asyncio
import os

import pyserve
from pyserve.config.routing import RequestRouterConfig


@pyserve.deployment(
    num_replicas=3,
    max_ongoing_requests=20,
    request_router_config=RequestRouterConfig(max_attempts=3, ejection_fall=3),
)
class Moody:
    """Says who answers, unless it is in a bad mood."""

    def __init__(self) -> None:
        self._is_sick = False

    async def __call__(self, delay_s: float = 0.0) -> int:
        if self._is_sick:
            raise ValueError("not today")
        await asyncio.sleep(delay_s)
        return os.getpid()

    async def sicken(self) -> int:
        """Fail all calls from now on; return the process."""
        self._is_sick = True
        return os.getpid()

    async def cure(self) -> None:
        """Answer again."""
        self._is_sick = False


app = Moody.bind()
# As the environment of its callers says.
plain = Moody.options(request_router_config=RequestRouterConfig()).bind()
