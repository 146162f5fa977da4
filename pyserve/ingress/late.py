"""Says which deployments' policies do not answer their routers in time.

A policy that hangs says nothing itself, and its thread neither; the routers count.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

_LOGGER = logging.getLogger(__name__)
# One line in so many seconds for each deployment, however many calls went without.
_COMPLAINT_PERIOD_S = 60.0


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
        self._clock = clock
        # What the last line of each has told, and until when there is no other.
        self._told: dict[str, tuple[int, float]] = {}

    def look(self) -> None:
        """Say what has been counted since the last line; to be called now and then."""
        now = self._clock()
        counts = self._counts()
        for target, count in counts.items():
            told, silent_until = self._told.get(target, (0, now))
            more = count - told if count >= told else count
            if now < silent_until or not more:
                continue
            self._told[target] = (count, now + _COMPLAINT_PERIOD_S)
            _LOGGER.warning(
                "the policy of %s has not answered within 100 ms %d times; it is asked less often "
                "until it does, and the router's own policy picks replicas meanwhile",
                target,
                more,
            )
        self._told = {
            target: (told, silent_until)
            for target, (told, silent_until) in self._told.items()
            if target in counts or now < silent_until
        }
