"""The policy ``latency``: the fewest replicas that keep waits short. Pure.

Arrival rate and service time are learnt; the number follows by Allen and Cunneen's approximation
(``servers_for``), with the burstiness of the last minutes. The policy plans for the time at which a
replica that starts now will serve: steady growth is extrapolated until then, and the backlog of
calls at that time is worked off in about the duration of a start. Periodic load is forecast
(``arrivals``). Nothing is kept for longer than its evidence: each remembered number has a time
after which it is computed again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pyserve.config import AggregationFunction, AutoscalingConfig
from pyserve.control.autoscaling.arrivals import KEPT_S, Forecast, Series
from pyserve.control.autoscaling.rule import Proposal
from pyserve.control.autoscaling.signals import Signals
from pyserve.types import ReplicaId

# The share of calls that may exceed the target: 99 of 100 must be within it.
_SHARE_BEYOND = 0.01
# Squared coefficient of variation of service times. Not measured: taken as exponential.
_SERVICE_VARIATION = 1.0
# Where a target leaves no time to wait, a tenth of the service time is allowed.
_WAIT_SHARE_MIN = 0.1
# Used until a replica has become ready: an interpreter's start and a model of moderate size.
_READY_AFTER_S = 10.0
# The window in which a trend is looked for at first, and the shortest wait before shrinking.
_TREND_S, _HOLD_S = 20.0, 10.0
# A backlog is worked off within this many times the duration of a start, or at least this time.
_WORK_OFF_STARTS, _BACKLOG_S = 1.4, 4.0
# A report every 100 ms, a decision as often, and a router that learns of the replica.
_REACTION_S = 0.5


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas of a deployment in numbers.

    Attributes:
        running: Ids of those that serve.
        target: How many there should be.
        starting_since: When the starts under way began.
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
        self._wanted = _Most()
        # Additional replicas for calls that wait too long.
        self._extra = _Most()
        self._used = Series(_BACKLOG_S)

    def propose(self, signals: Signals, fleet: Fleet, now: float) -> Proposal:
        """Return how many replicas are needed to meet the target."""
        if self._wanted.is_empty:
            # The replicas that run already may be there for a load that has not been seen yet.
            self._wanted.add(float(fleet.target), now)
        each = min(self._config.target_ongoing_requests, fleet.ongoing_max)
        ready_s = _READY_AFTER_S if fleet.ready_after_s is None else fleet.ready_after_s
        most = self._most_for_waiting(signals, len(fleet.running), each, now)
        service_s = signals.service_s(now)
        if service_s is None:
            return self._unlearnt(signals, each, most, ready_s, now)
        season = signals.seasons.ahead(now, ready_s + _REACTION_S, service_s)
        rate = self._planned_rate(signals, season, service_s, ready_s, now)
        dispersion = signals.arrivals.dispersion(now)
        servers = self._servers(rate * service_s, service_s, dispersion)
        if season is not None and season.rate > 0:
            other_s = season.load / season.rate
            servers = max(servers, self._servers(season.load, other_s, dispersion))
        # With a forecast, replicas need not be held as long for load that might come back.
        hold_s = self._hold_s(_HOLD_S if season is not None else max(_HOLD_S, ready_s))
        replicas = self._wanted.add(math.ceil(servers / each - 1e-9), now, hold_s)
        has_room = False
        backlog = _backlog(signals.parked, fleet, rate, each / service_s, ready_s, now)
        if backlog < max(rate * self._wait_s(service_s), 1.0):
            self._extra.clear()  # By Little's law they wait no longer than they may.
        else:
            work_off_s = max(_BACKLOG_S, _WORK_OFF_STARTS * ready_s)
            spare_per_s = max(replicas * each / service_s - rate, 0.0)
            more_per_s = max(backlog / work_off_s - spare_per_s, 0.0)
            # The backlog shrinks, but the replicas for it stay for as long as the work was planned.
            wanted = replicas + self._extra.add(more_per_s * service_s / each, now, work_off_s)
            has_room = wanted > most
            replicas = max(replicas, min(wanted, most))
        reason = self._reason(rate, service_s, season)
        if backlog >= 1:
            reason += f", and {backlog:.0f} calls that wait until then"
        if has_room:
            reason += ", although replicas have room"
        return Proposal(replicas, reason)

    def _unlearnt(
        self, signals: Signals, each: float, most: float, ready_s: float, now: float
    ) -> Proposal:
        """Return a number from the calls in the mesh now, while service times are unknown."""
        calls = signals.total
        wanted = max(signals.ongoing / each, min(calls / each, most))
        replicas = self._wanted.add(wanted, now, self._hold_s(max(_HOLD_S, ready_s)))
        if not calls:
            return Proposal(replicas, "nothing is known of its calls yet")
        return Proposal(
            replicas, f"{calls} calls at once, {each:g} for each replica; no call has ended yet"
        )

    def _reason(self, rate: float, service_s: float, season: Forecast | None) -> str:
        reason = (
            f"{rate:.1f} calls/s of {service_s * 1000:.0f} ms each and "
            f"{self._name}={self._target_s:g}"
        )
        if self._name == "target_p99_s" and service_s >= self._target_s:
            reason += ", which no number of replicas keeps: the call itself takes longer"
        if season is not None:
            reason += f"; its period says {season.rate:.1f} calls/s for as long as a start takes"
        return reason

    def _most_for_waiting(self, signals: Signals, running: int, each: float, now: float) -> float:
        """Return how many replicas the waiting calls may demand.

        A router may hold calls for another reason than a lack of replicas, such as a model that
        only one replica has loaded. Then places are free. So waiting calls multiply the replicas at
        most by the ratio of used to free places. If no place is free, there is no limit; if more
        are free than used, as when new replicas did not help, they add none.
        """
        places = running * each
        self._used.set(1 - signals.places_free(each) / places if places else 1.0, now)
        used = self._used.aggregate(AggregationFunction.MEAN, now)
        return math.inf if used > 1 - 1e-9 else running * used / (1 - used)

    def _planned_rate(
        self,
        signals: Signals,
        season: Forecast | None,
        service_s: float,
        ready_s: float,
        now: float,
    ) -> float:
        """Return the rate of these calls at the time when a replica that starts now will serve."""
        arrivals = signals.arrivals
        if season is not None:
            return arrivals.rate(now, service_s)
        over_s, growth = _TREND_S, arrivals.growth(now, _TREND_S)
        while not growth and over_s < min(2 * ready_s, KEPT_S / 2):
            over_s *= 2
            growth = arrivals.growth(now, over_s)
        # The mean is of five seconds ago.
        trend = arrivals.mean(now) + growth * (ready_s + _REACTION_S + 5.0) if growth else 0.0
        return max(arrivals.rate(now, service_s), trend)

    def _servers(self, load: float, service_s: float, dispersion: float) -> int:
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

    def _hold_s(self, otherwise_s: float) -> float:
        delay_s = self._config.downscale_delay_s
        return otherwise_s if delay_s is None else delay_s


class _Most:
    """The largest of recent numbers."""

    def __init__(self) -> None:
        # Largest first, each later than the one before.
        self._numbers: deque[tuple[float, float]] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._numbers

    def add(self, number: float, now: float, for_s: float = math.inf) -> float:
        """Return the largest one of the last seconds, including this one."""
        while self._numbers and self._numbers[-1][1] <= number:
            self._numbers.pop()
        self._numbers.append((now, number))
        while self._numbers[0][0] < now - for_s:
            self._numbers.popleft()
        return self._numbers[0][1]

    def clear(self) -> None:
        self._numbers.clear()


def _backlog(
    waiting: int, fleet: Fleet, rate: float, each_per_s: float, ready_s: float, now: float
) -> float:
    """Return the calls that will wait when the next replica serves."""
    missing_per_s = rate - len(fleet.running) * each_per_s
    if not waiting or missing_per_s <= 0:
        return float(waiting)
    first = min(fleet.starting_since, default=now)
    return waiting + missing_per_s * max(first + ready_s - now, 0.0)


# How many servers a stream of calls needs so that few of them wait long.
#
# Formulas: Erlang's C (A. K. Erlang, 1917; by the recursion of his B, which is stable for any
# number of servers), and the approximation of Allen and Cunneen (A. O. Allen, "Probability,
# Statistics and Queueing Theory", 1978) for arrivals and services of any variability: waits are
# those of exponential ones times (ca² + cs²) / 2. That waits above zero are exponential is from W.
# Whitt, "Approximations for the GI/G/m queue", 1993.


def erlang_c(servers: int, load: float) -> float:
    """Return the share of calls that wait.

    Args:
        servers: How many there are, at least 1.
        load: In Erlangs: arrivals in the time of one service.
    """
    if load >= servers:
        return 1.0
    return _waiting_share(_erlang_b(servers, load), servers, load)


def share_beyond(servers: int, load: float, limit: float, variability: float) -> float:
    """Return the share of calls that wait longer than ``limit``.

    Args:
        servers: How many there are.
        load: In Erlangs.
        limit: In times of one service.
        variability: (ca² + cs²) / 2, of the times between arrivals and of the services.
    """
    if load >= servers:
        return 1.0
    return erlang_c(servers, load) * _tail(servers, load, limit, variability)


def servers_for(
    load: float, limit: float, *, variability: float, share: float, servers_max: int
) -> int:
    """Return the fewest servers with which at most ``share`` of the calls wait beyond ``limit``.

    Args:
        load: In Erlangs.
        limit: In times of one service.
        variability: As of ``share_beyond``.
        share: Of the calls, above 0 and below 1.
        servers_max: The answer where that many do not suffice.
    """
    lost = 1.0
    for servers in range(1, servers_max):
        lost = load * lost / (servers + load * lost)
        if load < servers:
            waiting = _waiting_share(lost, servers, load)
            if waiting * _tail(servers, load, limit, variability) <= share:
                return servers
    return servers_max


def _erlang_b(servers: int, load: float) -> float:
    lost = 1.0
    for number in range(1, servers + 1):
        lost = load * lost / (number + load * lost)
    return lost


def _waiting_share(lost: float, servers: int, load: float) -> float:
    return lost / (1 - load / servers * (1 - lost))


def _tail(servers: int, load: float, limit: float, variability: float) -> float:
    return math.exp(-(servers - load) * limit / variability)
