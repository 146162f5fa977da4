"""One replica as the mesh sees it: plain data, which ``MeshState`` changes."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pyserve.config import DeploymentOptions
from pyserve.config.control import HEALTH_FAILURES_MAX, KILL_MARGIN_S, SILENT_AFTER_S
from pyserve.types import DeploymentKey, ReplicaId, ReplicaRank

# The slot of replicas started outside the mesh (compose, another engine): they fill none.
EXTERNAL_SLOT = -1
# Fields whose changes are not reported to ``on_change``.
_UNNOTED = frozenset({"asked_at", "clock_ahead_s", "on_change", "release"})


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
