"""Keeps what is repeated with every call from filling the log: one line a minute is enough.

It decides only whether a line may be written; who writes it counts what happens meanwhile, where
that matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Often enough for somebody who has just begun to watch the log. Arbitrary.
SILENCE_S = 60.0


class Seldom:
    """Allows one line on each subject, and then no other for a minute.

    Args:
        clock: seconds, which never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_until: dict[str, float] = {}

    def allows(self, subject: str = "") -> bool:
        """Return whether a line may be written now; if so, it counts as written."""
        now = self._clock()
        if now < self._silent_until.get(subject, now):
            return False
        # Subjects come and go; what is remembered is bounded by the lines of a minute.
        self._silent_until = {
            each: until for each, until in self._silent_until.items() if now < until
        }
        self._silent_until[subject] = now + SILENCE_S
        return True
