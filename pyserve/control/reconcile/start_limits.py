"""Limits how many replicas start at a time, so that they do not overload a machine. Pure.

A start costs seconds of processor time and much memory at once, unlike a replica that waits for
calls. Rules, each of which a test can break:

- At most ``starts_max`` replicas start at a time; each frees its place when it is ready, when it
  ends, or when its start-up time-out has passed. One that its launcher cannot begin yet has none.
- The deployment with the fewest starts under way comes first, and among equals the one named first:
  children are named before the deployments that call them in constructors.
- The last quarter of the places is for deployments that have no start under way: constructors of
  one application that hang do not keep the others from replacing what died.
- A gang starts as a whole, even if it is larger than the number of free places.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyserve.control.reconcile.decide import Action, StartReplica
from pyserve.control.state.mesh import Phase, Replica
from pyserve.control.state.replica import EXTERNAL_SLOT
from pyserve.types import DeploymentKey, ReplicaId

_RESERVED_PART = 4  # one of so many places
_LOOK_INTERVAL_S = 1.0  # arbitrary


@dataclass(frozen=True, slots=True)
class Room:
    """How many replicas a launcher lets start at a time, and why.

    Attributes:
        starts_max: the number, 0 for none.
        why: for people.
        is_short: a resource is used up whose return is not announced.
    """

    starts_max: int
    why: str
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Waits:
    """The starts that wait for a place.

    Attributes:
        counts: of each deployment that has some.
        room: why they wait.
    """

    counts: Mapping[DeploymentKey, int] = field(default_factory=dict)
    room: Room = Room(0, "")

    def of(self, key: DeploymentKey) -> str:
        """Return a notice about a deployment's waiting starts, "" when there are none."""
        count = self.counts.get(key, 0)
        return f"{count} more wait for their turn: {self.room.why}" if count else ""

    def news(self, told: Waits) -> list[tuple[DeploymentKey, str]]:
        """Return the notices that are new since ``told``; another count alone is not news."""
        same = told.counts if told.room.is_short == self.room.is_short else {}
        return [(key, self.of(key)) for key in self.counts if key not in same]

    def next_wakeup(self, now: float) -> float | None:
        """Return when to ask for room again, ``None`` when the end of a start makes it."""
        return now + _LOOK_INTERVAL_S if self.counts and self.room.is_short else None


def limit_starts(
    actions: Sequence[Action], observed: Mapping[ReplicaId, Replica], starts_max: int
) -> list[Action]:
    """Return the actions without the starts that have to wait for a place."""
    waiting = _waiting(actions)
    under_way = Counter(
        replica.key
        for replica in observed.values()
        if replica.phase is Phase.STARTING
        and replica.slot != EXTERNAL_SLOT
        and not replica.waits_for
    )
    total = under_way.total()
    for_all = starts_max - starts_max // _RESERVED_PART
    chosen = set()
    while waiting and total < starts_max:
        key = min(waiting, key=under_way.__getitem__)
        if under_way[key] and total >= for_all:
            break
        together = waiting[key].popleft()
        chosen.update(together)
        if not waiting[key]:
            del waiting[key]
        under_way[key] += len(together)
        total += len(together)
    return [each for each in actions if not isinstance(each, StartReplica) or each in chosen]


def _waiting(actions: Sequence[Action]) -> dict[DeploymentKey, deque[list[StartReplica]]]:
    """Return the starts of each deployment, those of one gang together."""
    waiting: dict[DeploymentKey, deque[list[StartReplica]]] = {}
    for action in actions:
        if isinstance(action, StartReplica):
            mine = waiting.setdefault(action.key, deque())
            if mine and action.gang is not None and mine[-1][0].gang == action.gang:
                mine[-1].append(action)
            else:
                mine.append([action])
    return waiting


def held_back(wanted: Sequence[Action], begun: Sequence[Action]) -> Counter[DeploymentKey]:
    """Return how many starts of each deployment ``limit_starts`` has left out."""
    return _starts(wanted) - _starts(begun)


def _starts(actions: Sequence[Action]) -> Counter[DeploymentKey]:
    return Counter(action.key for action in actions if isinstance(action, StartReplica))
