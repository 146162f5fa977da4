"""When a process that has died is started again. Pure; ``now`` is an argument."""

from __future__ import annotations

from pyserve.config.control import restart_delay_s

# A process which dies on arrival costs two starts a minute at most.
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
        return restart_delay_s(self._deaths, DELAY_MAX_S)
