"""When a process that has died is started again. Pure; ``now`` is an argument."""

from __future__ import annotations

# At once, since most deaths are single; then with a growing delay, so that a process which dies on
# arrival costs two starts a minute at most.
DELAY_INITIAL_S = 1.0
DELAY_FACTOR = 2.0
DELAY_MAX_S = 30.0
# A process that lived this long has shown that it can: its death counts as a first one again.
FORGET_AFTER_S = 60.0


class Restarts:
    """The deaths of one process and those that took its place."""

    def __init__(self) -> None:
        self._deaths = 0

    def on_death(self, lived_s: float) -> float:
        """Record a death.

        Args:
            lived_s: seconds from its start.

        Returns:
            How long to wait before the next start, in seconds.
        """
        self._deaths = 1 if lived_s >= FORGET_AFTER_S else self._deaths + 1
        if self._deaths == 1:
            return 0.0
        # The exponent is bounded so that a long row of deaths does not overflow.
        exponent = min(self._deaths - 2, 16)
        return min(DELAY_INITIAL_S * DELAY_FACTOR**exponent, DELAY_MAX_S)
