"""Reports this replica's load to the controller, if its deployment scales with the load.

Counters are native and looked at ten times a second while calls come; the user's
``record_autoscaling_stats`` is asked each second. Counts travel only when they have changed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from pyserve.config import DeploymentOptions
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.replica.hooks import Hook, HookFailed, Question, Questioner
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
# While calls come, and while none has come for a while.
BUSY_PERIOD_S, IDLE_PERIOD_S = 0.1, 0.25
_IDLE_AFTER_S = 10.0
_STATS_PERIOD_S = 1.0
# As in Ray Serve.
_STATS_TIMEOUT_S = 10.0
_STATS_MAX = 64

# Returns how many calls run now, and how many have begun.
Counts = Callable[[], tuple[int, int]]
Report = Callable[[mesh_pb2.ReplicaLoad], Awaitable[None]]


class LoadCounter:
    """Makes reports of counts. Pure.

    The time that calls spend here is summed up from one look to the next.
    """

    def __init__(self) -> None:
        self._ongoing = self._calls = 0
        self._busy_s = 0.0
        self._looked_at: float | None = None
        self._told: tuple[int, int] | None = None
        self._active_at = -math.inf

    def look(self, ongoing: int, calls: int, now: float) -> mesh_pb2.ReplicaLoad | None:
        """Return the report due now; ``None``: nothing has changed."""
        if self._looked_at is not None:
            elapsed_s = now - self._looked_at
            self._busy_s += (self._ongoing + ongoing) / 2 * elapsed_s
        self._ongoing, self._calls, self._looked_at = ongoing, calls, now
        if ongoing or (ongoing, calls) != self._told:
            self._active_at = now
        if (ongoing, calls) == self._told:
            return None
        self._told = ongoing, calls
        return mesh_pb2.ReplicaLoad(ongoing=ongoing, calls=calls, busy_s=self._busy_s)

    def again(self) -> mesh_pb2.ReplicaLoad:
        """Return the last report."""
        return mesh_pb2.ReplicaLoad(ongoing=self._ongoing, calls=self._calls, busy_s=self._busy_s)

    def period_s(self, now: float) -> float:
        """Return after how long to look again."""
        return BUSY_PERIOD_S if now - self._active_at < _IDLE_AFTER_S else IDLE_PERIOD_S


class LoadReporter(Questioner[str]):
    """Reports while its context is entered; where the deployment does not scale, nothing.

    Args:
        instance: The user's object.
        options: Of its deployment.
        counts: Of the native server; safe in any thread.
        report: Called with each report, in the loop that this runs in.
        user_loop: Where a ``record_autoscaling_stats`` that is a coroutine function runs;
            ``None``: in the running loop.
    """

    def __init__(
        self,
        instance: object,
        options: DeploymentOptions,
        counts: Counts | None,
        report: Report,
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._counts = counts if options.scaling is not None else None
        method: Callable[[], object] | None = getattr(instance, "record_autoscaling_stats", None)
        hook = method and Hook(method, stats_json, timeout_s=_STATS_TIMEOUT_S, user_loop=user_loop)
        super().__init__(hook if self._counts is not None else None)
        self._report = report
        self._counter = LoadCounter()
        self._looks: asyncio.Task[None] | None = None
        self._lines = LogRateLimit()

    async def __aenter__(self) -> Self:
        """Begin."""
        if self._counts is not None:
            self._looks = asyncio.create_task(self._look_forever(self._counts))
        return await super().__aenter__()

    async def __aexit__(self, *ended: object) -> None:
        """End."""
        if self._looks is not None:
            self._looks.cancel()
            await asyncio.wait([self._looks])
        await super().__aexit__(None, None, None)

    async def _look_forever(self, counts: Counts) -> None:
        loop = asyncio.get_running_loop()
        while True:
            load = self._counter.look(*counts(), loop.time())
            if load is not None:
                await self._report(load)
            await asyncio.sleep(self._counter.period_s(loop.time()))

    async def _ask_forever(self, hook: Question[str]) -> None:
        while True:
            try:
                said = await hook.ask()
            except HookFailed as error:
                if self._lines.allows():
                    _LOGGER.warning(
                        "record_autoscaling_stats %s; the policy sees what it said before", error
                    )
            else:
                load = self._counter.again()
                load.stats_json = said
                await self._report(load)
            await asyncio.sleep(_STATS_PERIOD_S)


def stats_json(value: object) -> str:
    """Return what ``record_autoscaling_stats`` said as it travels.

    Raises:
        ValueError: It is no dict of numbers, or has more than 64.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"it returned {type(value).__name__} instead of a dict")
    if len(value) > _STATS_MAX:
        raise ValueError(f"it returned {len(value)} metrics; at most {_STATS_MAX} travel")
    numbers = {}
    for name, number in value.items():
        try:
            numbers[str(name)] = float(number)
        except (TypeError, ValueError) as error:
            raise ValueError(f"its {name!r} is {number!r}, no number") from error
    try:
        return json.dumps(numbers, allow_nan=False)
    except ValueError as error:
        raise ValueError("one of its numbers is infinite, or none (nan)") from error
