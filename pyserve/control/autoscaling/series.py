"""A number that changes from time to time, with its recent history. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pyserve.config import AggregationFunction

# Parts of a window: a hundredth of it is as exact as a decision needs.
_PARTS = 100


@dataclass(slots=True)
class _Part:
    begun: float
    ended: float
    integral: float
    largest: float
    smallest: float


class Series:
    """A level that holds until the next one is set; what is older than the window is forgotten.

    Args:
        window_s: How far back the questions go, in seconds above 0.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._level: float | None = None
        self._parts: deque[_Part] = deque()

    @property
    def level(self) -> float:
        """The level set last; 0 before the first one."""
        return self._level or 0.0

    def set(self, level: float, now: float) -> None:
        """Let ``level`` hold from ``now`` on; time never goes back."""
        self._pass(now)
        begins = not self._parts or now - self._parts[-1].begun >= self._window_s / _PARTS
        if begins:
            self._parts.append(_Part(now, now, 0.0, level, level))
        part = self._parts[-1]
        part.largest, part.smallest = max(part.largest, level), min(part.smallest, level)
        self._level = level

    def aggregate(self, function: AggregationFunction | str, now: float) -> float:
        """Return the mean over time, the largest or the smallest level of the window.

        Before anything was set it is 0; time before the first level does not count.
        """
        self._pass(now)
        if not self._parts:
            return 0.0
        if function == AggregationFunction.MAX:
            return max(part.largest for part in self._parts)
        if function == AggregationFunction.MIN:
            return min(part.smallest for part in self._parts)
        return self._mean(now)

    def _mean(self, now: float) -> float:
        begun = now - self._window_s
        total = elapsed = 0.0
        for part in self._parts:
            length_s = part.ended - part.begun
            inside_s = part.ended - max(part.begun, begun)
            if inside_s > 0:
                total += part.integral * inside_s / length_s
                elapsed += inside_s
        return total / elapsed if elapsed > 0 else self.level

    def _pass(self, now: float) -> None:
        """Let the level hold until ``now``; forget what lies before the window."""
        if not self._parts:
            return
        last = self._parts[-1]
        if now - last.begun >= self._window_s / _PARTS and last.ended > last.begun:
            # One that holds for long must not carry the largest and smallest of its beginning.
            last = _Part(last.ended, last.ended, 0.0, self.level, self.level)
            self._parts.append(last)
        last.integral += self.level * (now - last.ended)
        last.ended = now
        while len(self._parts) > 1 and self._parts[0].ended <= now - self._window_s:
            self._parts.popleft()
