"""Asks the user's ``record_routing_stats`` at intervals and reports changed results.

The user's routing policies see the results. A failure is only logged: routers keep the last good
result.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping

from pyserve.config import RequestRouterConfig
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.replica.hooks import Hook, HookFailed, Question, Questioner

_LOGGER = logging.getLogger(__name__)
# All replicas' facts travel to all routers whenever one of them changes.
FACTS_BYTES_MAX = 16 * 1024


def facts_json(value: object) -> str:
    """Return a hook's result as it is sent: a JSON object, ``""`` for an empty one.

    Raises:
        ValueError: It is no mapping, JSON cannot hold it, or it is larger than 16 KiB.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"it returned {type(value).__name__} instead of a dict")
    try:
        text = json.dumps(dict(value), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it returned what JSON cannot hold: {error}") from error
    if len(text) > FACTS_BYTES_MAX:
        raise ValueError(f"it returned {len(text)} bytes of JSON; at most {FACTS_BYTES_MAX} travel")
    return text if value else ""


class StatsReporter(Questioner[str]):
    """Asks while its context is entered, at once and then after each period.

    Args:
        instance: The user's object.
        config: ``request_routing_stats_period_s`` and ``request_routing_stats_timeout_s``.
        report: Called with the JSON of every answer that differs from the one before.
        user_loop: Where a method that is a coroutine function runs; ``None``: in the running loop.
    """

    def __init__(
        self,
        instance: object,
        config: RequestRouterConfig,
        report: Callable[[str], Awaitable[None]],
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        method: Callable[[], object] | None = getattr(instance, "record_routing_stats", None)
        timeout_s = config.request_routing_stats_timeout_s
        super().__init__(
            method and Hook(method, facts_json, timeout_s=timeout_s, user_loop=user_loop)
        )
        self._period_s = config.request_routing_stats_period_s
        self._report = report
        self._lines = LogRateLimit()

    async def _ask_forever(self, hook: Question[str]) -> None:
        said = ""
        while True:
            try:
                now = await hook.ask()
            except HookFailed as error:
                self._complain(error)
            else:
                if now != said:
                    await self._report(now)
                said = now
            await asyncio.sleep(self._period_s)

    def _complain(self, error: HookFailed) -> None:
        # However often the method is asked.
        if self._lines.allows():
            _LOGGER.warning("record_routing_stats %s; routers keep what it said before", error)
