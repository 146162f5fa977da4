"""The policy ``latency``: as many replicas as keep waits short, and no more. Pure.

Arrival rate and service time are learnt; the number follows by Allen and Cunneen's approximation
(``queueing``), with the burstiness of the last minutes. It plans for the time at which a replica
that starts now will serve: a steady growth is carried on until then, and calls that will have
piled up are worked off in about as long as that takes. A load that comes again is known
beforehand (``seasons``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pyserve.config import AutoscalingConfig
from pyserve.control.autoscaling.arrivals import KEPT_S
from pyserve.control.autoscaling.queueing import servers_for
from pyserve.control.autoscaling.rule import Proposal
from pyserve.control.autoscaling.signals import Signals
from pyserve.types import ReplicaId

# Of the calls, beyond the target: 99 of 100 shall be within.
_SHARE_BEYOND = 0.01
# Squared coefficient of variation of service times, which nobody measures: as exponential ones.
_SERVICE_VARIATION = 1.0
# Where a target leaves no time to wait, a tenth of a service is none to speak of.
_WAIT_SHARE_MIN = 0.1
# Until a replica has become ready: an interpreter's start and a model of moderate size.
_READY_AFTER_S = 10.0
# A trend is looked for over so long at first, and a shrinking waits so long at least.
_TREND_S, _HOLD_S = 20.0, 10.0
# Calls that wait are worked off in so many times what a start takes, and in no less than this.
_WORK_OFF_STARTS, _BACKLOG_S = 1.4, 4.0
# A report every 100 ms, a decision as often, and a router that learns of the replica.
_REACTION_S = 0.5


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas of a deployment, as far as numbers go.

    Attributes:
        running: Ids of those that serve.
        target: How many there shall be.
        starting_since: When those that start were begun.
        ready_after_s: How long the last ones took to start; None: not known.
        ongoing_max: How many calls each takes at once.
    """

    running: Sequence[ReplicaId]
    target: int
    starting_since: Sequence[float] = ()
    ready_after_s: float | None = None
    ongoing_max: int = 100


class LatencyPolicy:
    """One deployment's.

    Args:
        config: With ``target_wait_s`` or ``target_p99_s``.
    """

    def __init__(self, config: AutoscalingConfig) -> None:
        target = config.latency_target
        assert target is not None, "the configuration has a target for the latency"
        self._name, self._target_s = target
        self._config = config
        # What was wanted, and when; largest first, each later than the one before.
        self._wanted: deque[tuple[float, int]] = deque()
        # So many more, until no call waits too long any more.
        self._extra = 0.0

    def propose(self, signals: Signals, fleet: Fleet, now: float) -> Proposal:
        """Return how many replicas the target takes."""
        service_s = signals.service_s
        if service_s is None:
            return self._unlearnt(signals, fleet)
        each = min(self._config.target_ongoing_requests, fleet.ongoing_max)
        ready_s = _READY_AFTER_S if fleet.ready_after_s is None else fleet.ready_after_s
        season = signals.seasons.ahead(now, ready_s + _REACTION_S)
        rate = self._planned_rate(signals, season, ready_s, now)
        servers = self._servers(rate, service_s, signals.arrivals.dispersion(now))
        # Who knows what comes need not keep replicas for what may come.
        hold_s = _HOLD_S if season is not None else max(_HOLD_S, ready_s)
        if not self._wanted:
            # What runs already may be there for a load that nobody has seen yet.
            self._wanted.append((now, fleet.target))
        replicas = self._held(math.ceil(servers / each - 1e-9), hold_s, now)
        backlog = self._backlog(signals, fleet, rate, each / service_s, ready_s, now)
        if backlog < max(rate * self._wait_s(service_s), 1.0):
            self._extra = 0.0  # By Little's law they wait no longer than they may.
        else:
            spare_per_s = max(replicas * each / service_s - rate, 0.0)
            worked_off_per_s = backlog / max(_BACKLOG_S, _WORK_OFF_STARTS * ready_s)
            more_per_s = max(worked_off_per_s - spare_per_s, 0.0)
            self._extra = max(more_per_s * service_s / each, self._extra)
        reason = (
            f"{rate:.1f} calls/s of {service_s * 1000:.0f} ms each and "
            f"{self._name}={self._target_s:g}"
        )
        if self._name == "target_p99_s" and service_s >= self._target_s:
            reason += ", which no number of replicas keeps: the call itself takes longer"
        if season is not None:
            reason += f"; its period says {season:.1f} calls/s for as long as a start takes"
        if backlog >= 1:
            reason += f", and {backlog:.0f} calls that wait until then"
        return Proposal(replicas + self._extra, reason)

    def _unlearnt(self, signals: Signals, fleet: Fleet) -> Proposal:
        if not signals.total:
            return Proposal(float(len(fleet.running)), "nothing is known of its calls yet")
        each = min(self._config.target_ongoing_requests, fleet.ongoing_max)
        return Proposal(
            max(signals.total / each, float(fleet.target)),
            f"{signals.total} calls at once, {each:g} for each replica; no call has ended yet",
        )

    def _planned_rate(
        self, signals: Signals, season: float | None, ready_s: float, now: float
    ) -> float:
        """Return the rate of the time when a replica that starts now will serve."""
        arrivals = signals.arrivals
        if season is not None:
            return max(arrivals.rate(now), season)
        over_s, growth = _TREND_S, arrivals.growth(now, _TREND_S)
        while not growth and over_s < min(2 * ready_s, KEPT_S / 2):
            over_s *= 2
            growth = arrivals.growth(now, over_s)
        # The mean is of five seconds ago.
        trend = arrivals.mean(now) + growth * (ready_s + _REACTION_S + 5.0) if growth else 0.0
        return max(arrivals.rate(now), trend)

    def _servers(self, rate: float, service_s: float, dispersion: float) -> int:
        load = rate * service_s
        if load <= 0:
            return 0
        most = math.ceil(self._config.max_replicas * self._config.target_ongoing_requests)
        return servers_for(
            load,
            self._wait_s(service_s) / service_s,
            variability=(dispersion + _SERVICE_VARIATION) / 2,
            share=_SHARE_BEYOND,
            servers_max=most,
        )

    def _wait_s(self, service_s: float) -> float:
        """Return how long a call may wait."""
        wait_s = self._target_s - (service_s if self._name == "target_p99_s" else 0.0)
        return max(wait_s, _WAIT_SHARE_MIN * service_s)

    def _held(self, replicas: int, hold_s: float, now: float) -> int:
        """Return the most that was wanted in the time before a shrinking."""
        if self._config.downscale_delay_s is not None:
            hold_s = self._config.downscale_delay_s
        while self._wanted and self._wanted[-1][1] <= replicas:
            self._wanted.pop()
        self._wanted.append((now, replicas))
        while self._wanted[0][0] < now - hold_s:
            self._wanted.popleft()
        return self._wanted[0][1]

    def _backlog(
        self,
        signals: Signals,
        fleet: Fleet,
        rate: float,
        each_per_s: float,
        ready_s: float,
        now: float,
    ) -> float:
        """Return the calls that will wait when the next replica serves."""
        missing_per_s = rate - len(fleet.running) * each_per_s
        if not signals.parked or missing_per_s <= 0:
            return float(signals.parked)
        first = min(fleet.starting_since, default=now)
        return signals.parked + missing_per_s * max(first + ready_s - now, 0.0)
