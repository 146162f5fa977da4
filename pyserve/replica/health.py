"""Asks the loop of user code and the user's ``check_health`` at intervals, and reports failures.

A replica without that hook is healthy as long as its loop responds. The controller decides after
how many failures a replica is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from pyserve.bridge import LoopProbe
from pyserve.config import DeploymentOptions
from pyserve.observe.metrics.families import Tally
from pyserve.replica.hooks import Hook, HookFailed, Question, Questioner

_LOGGER = logging.getLogger(__name__)


class Report(Protocol):
    """Takes the outcome of one check."""

    def __call__(self, *, healthy: bool, reason: str) -> Awaitable[None]:
        """Send it to the controller."""


class HealthMeasures:
    """The results of checks.

    Attributes:
        times: How long they took.
        passed, failed: How many did.
    """

    def __init__(self) -> None:
        self.times = Tally()
        self.passed = self.failed = 0

    def add(self, duration_s: float, *, is_healthy: bool) -> None:
        """Count one."""
        self.times.add(duration_s)
        self.passed += is_healthy
        self.failed += not is_healthy


class HealthMonitor(Questioner[None]):
    """Checks while its context is entered.

    Args:
        instance: The user's object.
        options: ``health_check_period_s`` and ``health_check_timeout_s``.
        report: Called after every check that failed, and after the first that succeeds again.
        user_loop: Where a hook that is a coroutine function runs; ``None``: in the running loop.
        probe: Of the loop that calls run in; ``None``: it is not looked at.
        measures: Counts the checks.
    """

    def __init__(
        self,
        instance: object,
        options: DeploymentOptions,
        report: Report,
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
        probe: LoopProbe | None = None,
        measures: HealthMeasures | None = None,
    ) -> None:
        method: Callable[[], object] | None = getattr(instance, "check_health", None)
        timeout_s = options.health_check_timeout_s
        self._own = method and Hook(method, _nothing, timeout_s=timeout_s, user_loop=user_loop)
        self._loop_first = None if probe is None else _LoopThenHook(probe, self._own, timeout_s)
        super().__init__(self._loop_first or self._own)
        self._period_s = options.health_check_period_s
        self._has_changed = asyncio.Event()
        self._report = report
        self._measures = measures or HealthMeasures()

    def follow(self, options: DeploymentOptions) -> None:
        """Follow new options, and restart the current pause. Call it in the loop that checks."""
        for each in (self._own, self._loop_first):
            if each is not None:
                each.timeout_s = options.health_check_timeout_s
        self._period_s = options.health_check_period_s
        self._has_changed.set()

    async def _pause(self) -> None:
        while True:
            self._has_changed.clear()
            try:
                async with asyncio.timeout(self._period_s):
                    await self._has_changed.wait()
            except TimeoutError:
                return

    async def _ask_forever(self, hook: Question[None]) -> None:
        was_healthy = True
        while True:
            await self._pause()
            begun = time.monotonic()
            reason = await _check(hook)
            self._measures.add(time.monotonic() - begun, is_healthy=not reason)
            if reason:
                _LOGGER.warning("the health check failed: %s", reason)
            if reason or not was_healthy:
                await self._report(healthy=not reason, reason=reason)
            was_healthy = not reason


async def _check(question: Question[None]) -> str:
    """Return why the replica is not healthy, or an empty string."""
    try:
        await question.ask()
    except _LoopStands as error:
        return str(error)
    except HookFailed as error:
        return f"check_health {error}"
    return ""


class _LoopStands(Exception):
    """The loop of user code does not respond."""


class _LoopThenHook:
    """Asks the loop for a sign of life, and then the hook."""

    def __init__(self, probe: LoopProbe, hook: Hook[None] | None, timeout_s: float) -> None:
        self._probe = probe
        self._hook = hook
        self.timeout_s = timeout_s

    async def ask(self) -> None:
        """Ask both.

        Raises:
            HookFailed: See ``Hook.ask``.
            _LoopStands: The loop was late.
        """
        if not await self._probe.is_felt(self.timeout_s):
            raise _LoopStands(
                f"the event loop gave no sign of life for {self.timeout_s:g} s: an `async def` "
                "of the class holds it, or nothing wakes it any more"
            )
        if self._hook is not None:
            await self._hook.ask()


def _nothing(_answer: object) -> None:
    """Accept any result: a check is passed if it does not raise."""
