"""How soon a new request would get a state, by how fast states have left of late."""

from __future__ import annotations

# The weight that older steps keep with each new one: the last fifty or so count. Arbitrary.
_KEPT = 0.98


class Departures:
    """How many states leave, and what they free, in the time of the steps."""

    __slots__ = ("_cost", "_count", "_time_s")

    def __init__(self) -> None:
        self._count = 0.0
        self._cost = 0.0
        self._time_s = 0.0

    def leave(self, cost: float) -> None:
        """Count a state that has ended and frees this much."""
        self._count += 1
        self._cost += cost

    def step(self, duration_s: float) -> None:
        """Count a step."""
        self._time_s = self._time_s * _KEPT + duration_s
        self._count *= _KEPT
        self._cost *= _KEPT

    @property
    def mean_cost(self) -> float:
        """What a state freed in the mean; 0: none has left yet."""
        return self._cost / self._count if self._count else 0.0

    def wait_s(self, *, ahead: int, ahead_cost: float, places: int, free: float) -> float:
        """Return how long a request of the mean cost would wait for a state, in seconds.

        By Little's law: what has to leave before it, over how fast that leaves.

        Args:
            ahead: Requests that wait before it.
            ahead_cost: What these cost.
            places: States that there is room for now.
            free: Cost that there is room for now.

        Returns:
            0 where there is room at once, and where no state has left yet.
        """
        places_short = ahead + 1 - places
        cost_short = ahead_cost + self.mean_cost - free
        if not self._time_s or (places_short <= 0 and cost_short <= 0):
            return 0.0
        waits = [0.0]
        if places_short > 0 and self._count:
            waits.append(places_short * self._time_s / self._count)
        if cost_short > 0 and self._cost:
            waits.append(cost_short * self._time_s / self._cost)
        return max(waits)
