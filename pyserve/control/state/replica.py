"""Replicas as the mesh sees them, their index, and counts of starts and ends. Pure.

``Replica`` is plain data, which ``MeshState`` changes. Code that computes something for every
replica goes by the replica index, and looks again only at those in its set: a mesh of thousands
changes only a few at a time. A replica in an index reports its own changes, so that no code that
changes one can forget it.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pyserve.config import DeploymentOptions
from pyserve.config.control import HEALTH_FAILURES_MAX, KILL_MARGIN_S, SILENT_AFTER_S
from pyserve.observe.metrics.families import Tally
from pyserve.types import DeploymentKey, ReplicaId, ReplicaRank

# The slot of replicas started outside the mesh (compose, another engine): they fill none.
EXTERNAL_SLOT = -1
# Fields whose changes are not reported to ``on_change``.
_UNNOTED = frozenset({"asked_at", "clock_ahead_s", "costs", "on_change", "release"})


class Phase(enum.Enum):
    """The phase of a replica's life; it never goes back to an earlier one."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a start, or a whole version, failed.

    Attributes:
        summary: one line: what, where, what to do.
        traceback: of the replica's process, or "".
        user_code: raised by, or hanging in, the user's module or constructor.
    """

    summary: str
    traceback: str = ""
    user_code: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica runs and how others reach it.

    Attributes:
        direct_http, direct_grpc: ``host:port`` for balancers outside of the mesh; "": none.
        proves_itself: it proves that it has the mesh token; a server at the address that cannot is
            another process.
    """

    node: str = ""
    zone: str = ""
    address: str = ""
    unix_path: str = ""
    direct_http: str = ""
    direct_grpc: str = ""
    proves_itself: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of the requests of a continuously batched class, in its own unit.

    Attributes:
        running: What its states take of the budget.
        waiting: What requests without a state cost.
        budget: 0: it has none.
    """

    running: float
    waiting: float
    budget: float


@dataclass(slots=True)
class Slot:
    """One of the places 0 … n-1 of a version; a replacement takes the place of the dead."""

    deaths_in_a_row: int = 0
    start_failures_in_a_row: int = 0
    start_not_before: float = 0.0
    failed_in_user_code: bool = False
    last_end: str = ""  # until the next one is ready
    lost_at: float | None = None  # one that served has ended, and was not replaced yet


@dataclass(slots=True)
class Replica:
    """One replica as it is known.

    Attributes:
        options: of the version that it runs.
        joined: its Join stream stands. Only replicas with one are announced.
        left_at: when the stream broke, None while it stands or before it first did.
        health_at: when it last reported a check, or became ready.
        health_failures: failed checks in a row. After one, another report has to follow.
        kill_at: when a replica that stops has stopped long enough.
        stopping_at: when it was told to stop, or did so by itself.
        stops_itself: without having been told to.
        calls: the deployments whose handles are among its arguments.
        ailment: why the last check failed; "": it did not.
        asked_at: when it was asked for the sign of life that it still owes.
        silent: it owes one for too long.
        cordoned, node_cordoned: it gets no new calls, for itself or with its node.
        hangs: it owes one for so long that it is to be replaced.
        rank: its number, from its first Hello on.
        routing_stats_json, metadata_json: what its class says of itself; "": nothing.
        config, config_told: numbers of the user_config it has taken on, and was told last.
        refusal: why it has not taken on what it was told.
        gang: the first one of its gang, by which that is called; "": it starts alone.
        release: of pyserve, in its process; "": it has not joined yet.
        clock_ahead_s: of this machine's clock, when it joined; negative: behind.
        admin: ``host:port`` where it shows its metrics itself; "": its node does.
        costs: what its requests cost; ``None``: it has not said.
        waits_for: what its launcher misses; "": nothing, or it does not say.
        on_change: called with its id when anything of it has changed that others look at.
    """

    id: ReplicaId
    key: DeploymentKey
    version: str
    options: DeploymentOptions
    slot: int
    created_at: float
    phase: Phase = Phase.STARTING
    joined: bool = False
    left_at: float | None = None
    ready_at: float | None = None
    health_at: float = 0.0
    health_failures: int = 0
    kill_at: float | None = None
    stopping_at: float | None = None
    stops_itself: bool = False
    calls: frozenset[DeploymentKey] = frozenset()
    killed: bool = False
    asked_at: float | None = None
    silent: bool = False
    cordoned: bool = False
    node_cordoned: bool = False
    hangs: bool = False
    ailment: str = ""
    pid: int = 0
    place: Place = field(default_factory=Place)
    rank: ReplicaRank | None = None
    routing_stats_json: str = ""
    metadata_json: str = ""
    config: int = 0
    config_told: int = 0
    refusal: Failure | None = None
    admin: str = ""
    release: str = ""
    clock_ahead_s: float = 0.0
    costs: Costs | None = None
    waits_for: str = ""
    gang: str = ""
    on_change: Callable[[ReplicaId], None] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __setattr__(self, name: str, value: object) -> None:
        """Note the change."""
        object.__setattr__(self, name, value)
        # While the object is being made there is nothing to report, and the last field is missing.
        if name not in _UNNOTED and (told := getattr(self, "on_change", None)) is not None:
            told(self.id)

    def grace_left_s(self, now: float) -> float:
        """Return how long one that was told to stop may still finish what it has."""
        ends = math.inf if self.kill_at is None else self.kill_at - KILL_MARGIN_S
        return max(0.0, min(ends - now, self.options.graceful_shutdown_timeout_s))

    @property
    def overrun(self) -> str:
        """How it ends if it is killed because it has not ended in its time."""
        if self.kill_at is None or self.stopping_at is None:
            return "was killed"
        time_s = self.kill_at - self.stopping_at
        grace_s = max(0.0, time_s - KILL_MARGIN_S)
        return (
            f"was killed {time_s:.3g} s after it was to end: its last calls or hooks (lifespan, "
            f"__del__) took longer than its grace of {grace_s:.3g} s"
        )

    @property
    def silence_limit_s(self) -> float:
        """How long it may owe a sign of life: the time that the checks that replace it may take."""
        check_s = self.options.health_check_period_s + self.options.health_check_timeout_s
        return max(HEALTH_FAILURES_MAX * check_s, SILENT_AFTER_S)

    @property
    def was_lost(self) -> bool:
        """It left the mesh without having been told to."""
        return (
            self.left_at is not None
            and self.stopping_at is not None
            and self.left_at < self.stopping_at
        )

    @property
    def is_calm(self) -> bool:
        """It is in the usual state: it runs, and neither time nor its reports require an action."""
        return (
            self.phase is Phase.RUNNING
            and self.left_at is None
            and not self.health_failures
            and not self.hangs
            and self.refusal is None
        )

    @property
    def serves(self) -> bool:
        """It can take calls."""
        return self.phase is Phase.RUNNING and self.joined

    @property
    def in_rotation(self) -> bool:
        """Calls are sent to it."""
        return self.serves and not self.cordoned and not self.node_cordoned


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
