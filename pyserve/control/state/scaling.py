"""What the autoscaler has made of a version, as the rest of the controller sees it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

# Of one deployment: some minutes of a busy hour. Arbitrary.
_DECISIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Decision:
    """A change of the number of replicas, or an advice of one.

    Attributes:
        at: When it was decided, Unix time in seconds.
        before, after: How many there should be.
        reason: Why.
    """

    at: float
    before: int
    after: int
    reason: str


def no_decisions() -> deque[Decision]:
    """Return a list that keeps the latest decisions of a deployment, latest last."""
    return deque(maxlen=_DECISIONS_MAX)


@dataclass(slots=True)
class ScalingNote:
    """The number of replicas of one version, where it is not the one that was deployed.

    Attributes:
        target: How many there shall be; None: as many as were deployed.
        advised: The same as an advice that nobody follows.
        direction: 1 after growing, -1 after shrinking.
        reason: Why; "": nothing was decided yet.
        since: When that was decided, Unix time in seconds.
        pending: How many are wanted, but for a delay that runs.
        least, most: Bounds.
        ready_after_s: How long its replicas take to start; None: not known.
    """

    target: int | None = None
    advised: int | None = None
    direction: int = 0
    reason: str = ""
    since: float = 0.0
    pending: int = 0
    least: int = 0
    most: int = 0
    ready_after_s: float | None = None
