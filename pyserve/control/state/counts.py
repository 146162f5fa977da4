"""How often replicas started and ended, for metrics. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pyserve.control.state.replica import Phase, Replica
from pyserve.observe.metrics.tally import Tally
from pyserve.types import DeploymentKey


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
