"""When a process that has died is started again, and how it ended, in words. Pure."""

from __future__ import annotations

import signal

from pyserve.config.control import restart_delay_s

# A process which dies on arrival costs two starts a minute at most.
DELAY_MAX_S = 30.0
# After a life of this length, a death counts as the first one again.
FORGET_AFTER_S = 60.0


class Restarts:
    """The deaths of one process and those that took its place.

    Attributes:
        deaths: in a row, none of which came after a life long enough.
    """

    def __init__(self) -> None:
        self.deaths = 0

    def on_death(self, lived_s: float, *, is_awaited: bool = False) -> float:
        """Record a death.

        Args:
            lived_s: seconds from its start.
            is_awaited: it has served, and clients wait for the next one, which starts at once after
                any number of deaths.

        Returns:
            How long to wait before the next start, in seconds.
        """
        if is_awaited:
            self.deaths = 0
            return 0.0
        self.deaths = 1 if lived_s >= FORGET_AFTER_S else self.deaths + 1
        return restart_delay_s(self.deaths, DELAY_MAX_S)


def end_in_words(pid: int, status: int) -> str:
    """Return how a process ended.

    Args:
        pid: of the process.
        status: as ``subprocess`` says it: below 0, the number of the signal that ended it.
    """
    if status >= 0:
        return f"(process {pid}) ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"(process {pid}) was ended by signal {-status} ({name})"
