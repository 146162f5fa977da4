"""Keeps messages that repeat with every call from filling the log: one line a minute is enough.

It decides only whether a line may be written, and counts those that may not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

# Often enough for a person who has just begun to watch the log. Arbitrary.
SILENCE_S = 60.0
# Subjects that are distinguished at a time; further ones share one line. Arbitrary.
SUBJECTS_MAX = 256


@dataclass(slots=True)
class _Silence:
    until: float
    left_out: int = 0


class LogRateLimit:
    """Allows one line on each subject, and then no other for a minute.

    Args:
        clock: seconds, which never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silences: dict[Hashable, _Silence] = {}

    def allows(self, subject: Hashable = "") -> bool:
        """Return whether a line may be written now; if so, it counts as written."""
        return self.admit(subject) is not None

    def admit(self, subject: Hashable) -> int | None:
        """Return how many lines were left out since the last one; ``None``: leave this one out.

        The number is a lower bound if there are more than ``SUBJECTS_MAX`` subjects.
        """
        now = self._clock()
        if subject not in self._silences and len(self._silences) >= SUBJECTS_MAX:
            self._forget(now)
            if len(self._silences) >= SUBJECTS_MAX:
                subject = _OTHERS
        silence = self._silences.get(subject)
        if silence is not None and now < silence.until:
            silence.left_out += 1
            return None
        self._silences[subject] = _Silence(now + SILENCE_S)
        return 0 if silence is None else silence.left_out

    def _forget(self, now: float) -> None:
        self._silences = {
            subject: silence for subject, silence in self._silences.items() if now < silence.until
        }


_OTHERS = object()


class Allowance:
    """Limits lines to a burst and a rate per second; on any thread.

    Args:
        at_once: Lines that may come together, at least 1.
        per_s: Lines a second after that, more than 0.
        clock: seconds, which never go back.
    """

    def __init__(
        self, at_once: int, per_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once = at_once
        self._per_s = per_s
        self._clock = clock
        # The garbage collector, or a signal, may have something logged in the middle of it.
        self._lock = threading.RLock()
        self._left = float(at_once)  # 0 <= left <= at_once
        self._at = clock()
        self._left_out = 0

    def admit(self) -> int | None:
        """Return how many lines were left out since the last one; ``None``: leave this one out."""
        with self._lock:
            now = self._clock()
            self._left = min(self._left + (now - self._at) * self._per_s, self._at_once)
            self._at = now
            if self._left < 1:
                self._left_out += 1
                return None
            self._left -= 1
            left_out, self._left_out = self._left_out, 0
            return left_out

    def renew(self) -> None:
        """Forget what was written; for tests."""
        self._left, self._at, self._left_out = float(self._at_once), self._clock(), 0
