"""Times and sizes of the steps of one instance, for scrapes."""

from __future__ import annotations

from pyserve.observe.metrics.families import SIZE_BOUNDS, Tally
from pyserve.stepping.calls import Stepped


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
