"""Statistics of one queue's batches, in plain lists: a handful of additions for each batch."""

from __future__ import annotations

from pyserve.observe.metrics.tally import SIZE_BOUNDS, Tally


class BatchMeasures:
    """The times and sizes of batches. For the queue's thread; others may read them.

    Attributes:
        waits: How long the oldest call of each batch waited.
        runs: How long the batches took.
        sizes: Calls of a batch.
        failed: Batches whose function raised.
    """

    __slots__ = ("failed", "runs", "sizes", "waits")

    def __init__(self) -> None:
        self.waits = Tally()
        self.runs = Tally()
        self.sizes = Tally(SIZE_BOUNDS)
        self.failed = 0

    def begin(self, calls: int, waited_s: float) -> None:
        """Count a batch that leaves."""
        self.sizes.add(calls)
        self.waits.add(waited_s)

    def end(self, duration_s: float, *, has_failed: bool) -> None:
        """Count one that has run."""
        self.runs.add(duration_s)
        self.failed += has_failed
