"""Asks the user's ``check_health`` at intervals and reports what it says.

A replica without that hook is healthy as long as it lives. The controller decides how many
failures replace a replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from pyserve.config import DeploymentOptions
from pyserve.replica.hooks import Hook, HookFailed, Questioner

_LOGGER = logging.getLogger(__name__)


class Report(Protocol):
    """Takes the outcome of one check."""

    def __call__(self, *, healthy: bool, reason: str) -> Awaitable[None]:
        """Send it to the controller."""


class HealthMonitor(Questioner[None]):
    """Checks while its context is entered.

    Args:
        instance: The user's object.
        options: ``health_check_period_s`` and ``health_check_timeout_s``.
        report: Called after every check that failed, and after the first that succeeds again.
        user_loop: Where a hook that is a coroutine function runs; ``None``: in the running loop.
    """

    def __init__(
        self,
        instance: object,
        options: DeploymentOptions,
        report: Report,
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        method: Callable[[], object] | None = getattr(instance, "check_health", None)
        timeout_s = options.health_check_timeout_s
        super().__init__(
            method and Hook(method, _nothing, timeout_s=timeout_s, user_loop=user_loop)
        )
        self._period_s = options.health_check_period_s
        self._report = report

    async def _ask_forever(self, hook: Hook[None]) -> None:
        was_healthy = True
        while True:
            await asyncio.sleep(self._period_s)
            reason = await _check(hook)
            if reason:
                _LOGGER.warning("the health check failed: %s", reason)
            if reason or not was_healthy:
                await self._report(healthy=not reason, reason=reason)
            was_healthy = not reason


async def _check(hook: Hook[None]) -> str:
    """Return why the replica is not healthy, or an empty string."""
    try:
        await hook.ask()
    except HookFailed as error:
        return f"check_health {error}"
    return ""


def _nothing(_answer: object) -> None:
    """Whatever a check returns, it has not raised."""
