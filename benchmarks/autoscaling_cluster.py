"""Replicas and a router of virtual time, for ``autoscaling_family``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from benchmarks.autoscaling_workloads import Workload
from pyserve.types import ReplicaId

# How often a replica looks at how many calls run.
LOOK_S = 0.1


@dataclass(eq=False)
class Replica:
    """One replica, and its counters."""

    name: ReplicaId
    begun: float
    ready: float
    ongoing: int = 0
    calls: int = 0
    busy_s: float = 0.0
    seen: int = 0
    draining: bool = False

    def look(self) -> None:
        """Count the time of calls as a replica does, from one look to the next."""
        self.busy_s += (self.seen + self.ongoing) / 2 * LOOK_S
        self.seen = self.ongoing


@dataclass(frozen=True)
class Call:
    """One call: when it came, how long it takes, and from whom it is."""

    came: float
    takes_s: float
    client: int | None
    phase: int


class Cluster:
    """Replicas that start, work and drain, and a router before them."""

    def __init__(self, made: Workload) -> None:
        self._made = made
        self.replica_seconds = 0.0
        self.waiting: deque[Call] = deque()
        self.held = self.offered = 0
        self.target = max(made.replicas_min, 1)
        self._live: list[Replica] = []
        self._serving: list[Replica] = []
        self._count = 0
        for _ in range(self.target):
            self._start(0.0, ready=0.0)

    def serving(self) -> list[Replica]:
        """Return the replicas that take calls."""
        return self._serving

    def starting(self, now: float) -> list[float]:
        """Return since when the others start."""
        return [each.begun for each in self._live if each.ready > now]

    def look(self, now: float) -> None:
        """See which replicas have become ready."""
        self._serving = [each for each in self._live if each.ready <= now and not each.draining]

    def count(self) -> None:
        """Let each replica look at its calls."""
        for each in self._serving:
            each.look()

    def place(self) -> list[tuple[Call, Replica]]:
        """Return the calls that begin now, and where."""
        begun: list[tuple[Call, Replica]] = []
        while self.waiting and self._serving:
            best = min(self._serving, key=_ongoing)
            if best.ongoing >= self._made.places:
                break
            best.ongoing += 1
            best.calls += 1
            begun.append((self.waiting.popleft(), best))
        return begun

    def end(self, replica: Replica, now: float) -> None:
        """A call ends there."""
        replica.ongoing -= 1
        if replica.draining and not replica.ongoing:
            self._stop(replica, now)

    def scale(self, target: int, now: float) -> None:
        """Start what is missing, or drain what is too much: those that start first."""
        self.target = target
        live = [each for each in self._live if not each.draining]
        for _ in range(target - len(live)):
            self._start(now, ready=now + self._made.start_s)
        surplus = sorted(live, key=lambda each: (-max(each.ready - now, 0), each.ongoing))
        for replica in surplus[: max(len(live) - target, 0)]:
            replica.draining = True
            if not replica.ongoing:
                self._stop(replica, now)
        self.look(now)

    def close(self, now: float) -> None:
        """Count what is still there."""
        for replica in list(self._live):
            self._stop(replica, now)

    def _start(self, now: float, *, ready: float) -> None:
        self._count += 1
        self._live.append(Replica(ReplicaId(f"r{self._count}"), now, ready))
        self.look(now)

    def _stop(self, replica: Replica, now: float) -> None:
        self._live.remove(replica)
        self.replica_seconds += now - replica.begun


def _ongoing(replica: Replica) -> int:
    return replica.ongoing
