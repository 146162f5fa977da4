"""Times and sizes of the steps of one instance, for scrapes."""

from __future__ import annotations

from collections.abc import Callable

from pyserve.observe.metrics.families import SIZE_BOUNDS, Tally
from pyserve.stepping.calls import Stepped
from pyserve.stepping.entries import Load
from pyserve.stepping.options import ContinuousOptions


class StepMeasures:
    """Times and sizes of steps. For the thread that steps; others may read them.

    Attributes:
        runs: How long steps took.
        sizes: Requests that shared a step.
        first_values: From a request's arrival to its first value.
        next_values: From one value of a request to its next.
    """

    __slots__ = ("first_values", "next_values", "runs", "sizes")

    def __init__(self) -> None:
        self.runs = Tally()
        self.sizes = Tally(SIZE_BOUNDS)
        self.first_values = Tally()
        self.next_values = Tally()

    def value(self, call: Stepped, now: float) -> None:
        """Count the time of a call's next value, before it is counted as sent."""
        (self.next_values if call.sent else self.first_values).add(now - call.value_at)
        call.value_at = now
        if call.trace is not None and not call.sent:
            call.trace.note("first value")

    def step(self, size: int, duration_s: float) -> None:
        """Count one step."""
        self.sizes.add(size)
        self.runs.add(duration_s)


class Unanswered:
    """Requests that have had no value yet, of callers who read each. For the event loop."""

    __slots__ = ("_arrived_s", "_since")

    def __init__(self) -> None:
        self._since: dict[object, float] = {}
        self._arrived_s = 0.0  # The sum of when they came.

    def add(self, call: object, now: float) -> None:
        """Begin to count a request."""
        self._since[call] = now
        self._arrived_s += now

    def discard(self, call: object) -> None:
        """Count a request no longer, which has had a value or has ended. Idempotent."""
        since = self._since.pop(call, None)
        if since is not None:
            # Without any, no rounding error of theirs is left.
            self._arrived_s = self._arrived_s - since if self._since else 0.0

    def held(self, now: float) -> tuple[int, float]:
        """Return how many there are, and how long they have been here together; from any thread."""
        number = len(self._since)
        return number, max(0.0, number * now - self._arrived_s)


# Takes what requests cost, for routers: see ``_router.Server.set_costs``.
Tell = Callable[..., None]


class CostReports:
    """Reports what the requests of one instance cost, when it has changed.

    Args:
        options: The limits of the class.
        tell: Takes a report.
    """

    def __init__(self, options: ContinuousOptions, tell: Tell) -> None:
        self._options = options
        self._tell = tell
        self._told: object = None

    def report(self, load: Load, arrivals: int, calls: int) -> None:
        """Report, between two steps.

        Args:
            load: What is held now.
            arrivals: How many requests have come so far.
            calls: How many are here.
        """
        # Routers tell reports apart by their numbers, so each change of who is here is one.
        now = (load.used, load.waiting_cost, arrivals, calls)
        if now == self._told:
            return
        self._told = now
        self._tell(
            budget=self._options.budget or 0.0,
            running=load.used,
            waiting=load.waiting_cost,
            calls=calls,
            places=self._options.max_running,
            step_s=load.step_s,
            wait_s=load.wait_s,
        )
