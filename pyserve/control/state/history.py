"""What has become of deployments: their conditions, and the autoscaler's decisions. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a deployment or an application, in the words of ``health``.

    Attributes:
        word: Of the enumeration.
        since: Unix time from which on.
        former: The word before; "": none is known.
    """

    word: str
    since: float
    former: str = ""

    def becomes(self, word: str, now: float) -> Condition:
        """Return the condition after an observation of ``word``."""
        return self if word == self.word else Condition(word, now, self.word)


# Of one deployment: some minutes of a busy hour. Arbitrary.
_DECISIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Decision:
    """A change of the number of replicas, or advice to change it.

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
        target: How many there should be; None: as many as were deployed.
        advised: The same as mere advice, which is not applied.
        direction: 1 after growing, -1 after shrinking.
        reason: Why; "": nothing was decided yet.
        since: When that was decided, Unix time in seconds.
        pending: How many are wanted once a delay has passed.
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
