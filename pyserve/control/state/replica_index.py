"""The replicas of a mesh by their ids and deployments, and counts of starts and ends. Pure.

Code that computes something for every replica goes by the replica index, and looks again only at
those in its set: a mesh of thousands changes only a few at a time. A replica in an index reports
its own changes, so that no code that changes one can forget it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pyserve.control.state.replica import Phase, Replica
from pyserve.observe.metrics.families import Tally
from pyserve.types import DeploymentKey, ReplicaId

# A set that keeps its order, so that equal histories have equal ends.
Follower = dict[ReplicaId, None]
_NONE: Mapping[ReplicaId, Replica] = {}


class ReplicaIndex(dict[ReplicaId, Replica]):
    """Replicas, in the order in which they came."""

    def __init__(self, replicas: Mapping[ReplicaId, Replica] | None = None) -> None:
        super().__init__()
        self._of: dict[DeploymentKey, dict[ReplicaId, Replica]] = {}
        self._versions: Counter[tuple[DeploymentKey, str]] = Counter()
        self._followers: list[Follower] = []
        self._uneasy: dict[ReplicaId, Replica] = {}
        self._unsorted = self.follow()
        self.update(replicas or {})

    def follow(self) -> Follower:
        """Return a set that gets the id of each replica that changes, comes, or goes.

        The follower takes out what it has looked at. All that are there now are in it.
        """
        follower = dict.fromkeys(self)
        self._followers.append(follower)
        return follower

    def uneasy(self, key: DeploymentKey | None = None) -> list[Replica]:
        """Return those of a deployment, or of all, for which something may be due: not the calm."""
        for replica_id in take(self._unsorted):
            replica = self.get(replica_id)
            if replica is None or replica.is_calm:
                self._uneasy.pop(replica_id, None)
            else:
                self._uneasy[replica_id] = replica
        return [each for each in self._uneasy.values() if key is None or each.key == key]

    def of(self, key: DeploymentKey) -> Mapping[ReplicaId, Replica]:
        """Return the replicas of one deployment, of any version and phase, as they come and go."""
        return self._of.get(key, _NONE)

    def by_deployment(self) -> defaultdict[DeploymentKey, list[Replica]]:
        """Return the replicas of each deployment as they are now, of any version and phase."""
        return defaultdict(list, {key: list(mine.values()) for key, mine in self._of.items()})

    def has_version(self, key: DeploymentKey, version: str) -> bool:
        """Say whether there is a replica of this version of a deployment."""
        return (key, version) in self._versions

    def versions(self) -> set[str]:
        """Return the ids of the versions that have a replica."""
        return {version for _, version in self._versions}

    def note(self, replica_id: ReplicaId) -> None:
        """A replica has changed; they say so themselves."""
        for follower in self._followers:
            follower[replica_id] = None

    def __setitem__(self, replica_id: ReplicaId, replica: Replica) -> None:
        """Take a replica in."""
        self.pop(replica_id, None)
        super().__setitem__(replica_id, replica)
        self._of.setdefault(replica.key, {})[replica_id] = replica
        self._versions[replica.key, replica.version] += 1
        replica.on_change = self.note
        self.note(replica_id)

    def __delitem__(self, replica_id: ReplicaId) -> None:
        """Let a replica go."""
        replica = self[replica_id]
        super().__delitem__(replica_id)
        replica.on_change = None
        mine = self._of[replica.key]
        del mine[replica_id]
        if not mine:
            del self._of[replica.key]
        version = (replica.key, replica.version)
        self._versions[version] -= 1
        if not self._versions[version]:
            del self._versions[version]
        self.note(replica_id)

    def pop(self, replica_id: ReplicaId, default: Any = None) -> Any:
        """Let a replica go and return it, or ``default``."""
        if replica_id not in self:
            return default
        replica = self[replica_id]
        del self[replica_id]
        return replica

    def update(self, replicas: Mapping[ReplicaId, Replica]) -> None:  # type: ignore[override]
        """Take several in."""
        for replica_id, replica in replicas.items():
            self[replica_id] = replica

    def clear(self) -> None:
        """Let all of them go."""
        for replica_id in list(self):
            del self[replica_id]

    def setdefault(self, *_: object) -> NoReturn:
        """Not supported, since the index would not notice it."""
        raise NotImplementedError

    def popitem(self) -> NoReturn:
        """Not supported, since the index would not notice it."""
        raise NotImplementedError


def take(follower: Follower) -> Iterable[ReplicaId]:
    """Empty the set of a follower and return what was in it, in the order of their changes."""
    taken = list(follower)
    follower.clear()
    return taken


# How often replicas started and ended, for metrics.


@dataclass(slots=True)
class ReplicaCounts:
    """Of one deployment, since the controller began.

    Attributes:
        starts: Replicas that were started, by the mesh or by others.
        ready: Those that became ready.
        ends: Those that ended, by how: ``stopped``, ``killed``, ``died``, ``failed_to_start``.
        start_times: From a start to a ready replica.
        stop_times: From the word to stop to the end of the process.
    """

    starts: int = 0
    ready: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    start_times: Tally = field(default_factory=Tally)
    stop_times: Tally = field(default_factory=Tally)

    def on_ready(self, took_s: float) -> None:
        """One has become ready."""
        self.ready += 1
        self.start_times.add(took_s)


class Counted(dict[DeploymentKey, ReplicaCounts]):
    """Those of all deployments."""

    def of(self, key: DeploymentKey) -> ReplicaCounts:
        """Return what has been counted of a deployment's replicas, to count on."""
        found = self.get(key)
        if found is None:
            found = self[key] = ReplicaCounts()
        return found

    def on_end(self, replica: Replica, now: float) -> None:
        """One has ended, in the phase that it is in."""
        counts = self.of(replica.key)
        if replica.stopping_at is not None:
            counts.stop_times.add(now - replica.stopping_at)
        how = "killed" if replica.killed else "stopped"
        if replica.phase is not Phase.STOPPING:
            how = "failed_to_start" if replica.phase is Phase.STARTING else "died"
        counts.ends[how] += 1
