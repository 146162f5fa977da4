"""Says which deployments' policies do not answer their routers in time.

A policy that hangs says nothing itself, and its thread neither; the routers count.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from pyserve.observe.log_rate_limit import LogRateLimit

_LOGGER = logging.getLogger(__name__)


class LatePolicies:
    """Writes a line for each deployment whose policy is late, at most one a minute.

    Args:
        counts: returns how often each deployment's policy did not answer in time; counts of a
            policy that was replaced begin anew.
        clock: seconds.
    """

    def __init__(
        self, counts: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._counts = counts
        self._lines = LogRateLimit(clock)
        # The count in the last line of each.
        self._told: dict[str, int] = {}

    def look(self) -> None:
        """Log what has been counted since the last line; to be called periodically."""
        counts = self._counts()
        for target, count in counts.items():
            told = self._told.get(target, 0)
            more = count - told if count >= told else count
            if not more or not self._lines.allows(target):
                continue
            self._told[target] = count
            _LOGGER.warning(
                "the policy of %s has not answered within 100 ms %d times; it is asked less often "
                "until it does, and the router's own policy picks replicas meanwhile",
                target,
                more,
            )
        self._told = {target: told for target, told in self._told.items() if target in counts}
