"""How long callers of a continuously batched class wait for values, and the rule for it. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, fields

from pyserve.config import AggregationFunction, AutoscalingConfig
from pyserve.control.autoscaling.arrivals import Series
from pyserve.types import ReplicaId

# Growing looks back so long: a few values that were slow by chance decide nothing.
RECENT_S = 5.0
# After a replica has begun, requests that still wait for the others do not yet add another one.
_SETTLING_S = 2.0
# Parts of those moments; windows end at the ends of parts.
_PARTS = 10
# So many times as many replicas at once: a queue that grows makes a time of any length.
_GROWTH_MAX = 2.0
# While fewer requests wait than so much of the most in the last moments, they become fewer.
_DRAINING = 0.9
# How much of the target, and of all that replicas can do, those that stay may use when others
# leave. Near either, a little more load makes callers wait much longer.
_TARGET_SHARE, _FULLNESS_MAX = 0.9, 0.8


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a replica says of its values; counts since it serves. As ``StepLoad`` of the protocol.

    Attributes:
        first_values, first_value_s: How many there were, and how long all took together.
        next_values, next_value_s: The same of further ones.
        unanswered, unanswered_s: Requests without a value, and how long they have been there.
        fullness: How much of what it can do at most it does, and what waits.
    """

    first_values: int = 0
    first_value_s: float = 0.0
    next_values: int = 0
    next_value_s: float = 0.0
    unanswered: int = 0
    unanswered_s: float = 0.0
    fullness: float = 0.0


@dataclass(slots=True)
class _Bin:
    begun: float
    first_values: float = 0.0
    first_value_s: float = 0.0
    next_values: float = 0.0
    next_value_s: float = 0.0
    calls: float = 0.0
    parked_s: float = 0.0

    def add(self, other: _Bin) -> None:
        for each in _SUMS:
            setattr(self, each, getattr(self, each) + getattr(other, each))


_SUMS = tuple(each.name for each in fields(_Bin) if each.name != "begun")


@dataclass(slots=True)
class _Replica:
    report: StepReport
    at: float


class ValueTimes:
    """The times of one deployment's values.

    Args:
        config: Of its scaling.
        now: Seconds, on any clock that never goes back.
    """

    def __init__(self, config: AutoscalingConfig, now: float) -> None:
        self._look_back_s = config.look_back_period_s
        self._recent_s = min(self._look_back_s, max(config.upscale_delay_s, RECENT_S))
        self._bins: deque[_Bin] = deque([_Bin(now)])
        self._replicas: dict[ReplicaId, _Replica] = {}
        self._grew_at = -math.inf
        self._parked = 0
        self._passed_at = now
        self._fullness = Series(self._recent_s), Series(self._look_back_s)
        self._unanswered = Series(self._recent_s)
        # Sums over the replicas, since thousands may report ten times a second each.
        self._full_now, self._unanswered_now = 0.0, 0

    @property
    def is_told(self) -> bool:
        """Whether a replica has said anything."""
        return bool(self._replicas)

    def on_replica(self, replica: ReplicaId, report: StepReport, now: float) -> None:
        """Take in a replica's report."""
        self._pass(now)
        known = self._replicas.get(replica)
        if known is None:
            if self._replicas:
                self._grew_at = now
            # Its counts run since its start, perhaps under a controller before this one.
            known = self._replicas[replica] = _Replica(report, now)
            self._full_now += report.fullness
            self._unanswered_now += report.unanswered
        before, last = known.report, self._bins[-1]
        if report.first_values >= before.first_values and report.next_values >= before.next_values:
            last.first_values += report.first_values - before.first_values
            last.first_value_s += report.first_value_s - before.first_value_s
            last.next_values += report.next_values - before.next_values
            last.next_value_s += report.next_value_s - before.next_value_s
        self._full_now += report.fullness - before.fullness
        self._unanswered_now += report.unanswered - before.unanswered
        known.report, known.at = report, now
        self._note_levels(now)

    def on_calls(self, begun: int, now: float) -> None:
        """Take in how many calls have begun in replicas, which routers then no longer hold."""
        self._pass(now)
        self._bins[-1].calls += begun

    def on_parked(self, parked: int, now: float) -> None:
        """Take in how many calls wait in routers."""
        self._pass(now)
        self._parked = parked
        self._note_levels(now)

    def keep_replicas(self, running: Collection[ReplicaId], now: float) -> None:
        """Forget what the others hold; the times of their values stay."""
        self._replicas = {id_: each for id_, each in self._replicas.items() if id_ in running}
        self._sum_up()
        self._note_levels(now)

    def take_over(self, before: ValueTimes) -> None:
        """Continue from another object's reports."""
        self._bins, self._replicas = before._bins, before._replicas
        self._parked, self._passed_at = before._parked, before._passed_at
        self._sum_up()

    def fullness(self, now: float) -> float:
        """Return how many replicas would be full with the requests of all, in the mean."""
        return max(each.aggregate(AggregationFunction.MEAN, now) for each in self._fullness)

    def is_draining(self, now: float) -> bool:
        """Say whether there are enough replicas for fewer and fewer requests to wait."""
        most = self._unanswered.aggregate(AggregationFunction.MAX, now)
        return self._unanswered.level < _DRAINING * most

    def first_value_s(self, now: float, *, recently: bool) -> float | None:
        """Return how long a caller waits for the first value in the mean.

        The wait in routers is that of Little's law, since they say only how many calls wait.

        Args:
            now: Seconds.
            recently: In the last moments, and not in the whole look-back period.

        Returns:
            Seconds; None: no caller has waited, or it is too early to say.
        """
        seen = self._seen(now, recently)
        if seen is None:
            return None
        waits, total_s, number = [], seen.first_value_s, seen.first_values
        if number:
            waits.append(total_s / number)
        # Those that have waited for longer already make the mean longer.
        for each in self._replicas.values():
            number += each.report.unanswered
            total_s += each.report.unanswered_s + each.report.unanswered * (now - each.at)
        if number:
            waits.append(total_s / number)
        # Where none of those that wait in routers begins, each has waited at least its own share.
        parked_s = seen.parked_s / (seen.calls or self._parked or 1)
        if parked_s:
            waits.append(0.0)
        return max(waits) + parked_s if waits else None

    def next_value_s(self, now: float, *, recently: bool) -> float | None:
        """Return how long a caller waits for a further value; see ``first_value_s``."""
        seen = self._seen(now, recently)
        if seen is None or not seen.next_values:
            return None
        return seen.next_value_s / seen.next_values

    def _seen(self, now: float, recently: bool) -> _Bin | None:
        self._pass(now)
        since = now - self._look_back_s
        if recently:
            if now - self._grew_at < _SETTLING_S:
                return None
            since = max(now - self._recent_s, self._grew_at)
        seen = _Bin(since)
        for each in self._bins:
            if each.begun >= since - 1e-9:
                seen.add(each)
        return seen

    def _sum_up(self) -> None:
        reports = [each.report for each in self._replicas.values()]
        self._full_now = sum(each.fullness for each in reports)
        self._unanswered_now = sum(each.unanswered for each in reports)

    def _note_levels(self, now: float) -> None:
        for series in self._fullness:
            series.set(self._full_now, now)
        self._unanswered.set(self._parked + self._unanswered_now, now)

    def _pass(self, now: float) -> None:
        last = self._bins[-1]
        last.parked_s += self._parked * (now - self._passed_at)
        self._passed_at = now
        if now - last.begun >= self._recent_s / _PARTS:
            self._bins.append(_Bin(now))
        while len(self._bins) > 1 and self._bins[1].begun <= now - self._look_back_s:
            self._bins.popleft()


def replicas_for_time(
    measured_s: float,
    target_s: float,
    *,
    running: int,
    fullness: float,
    calls: float,
    is_draining: bool = False,
) -> float:
    """Return how many replicas bring a time to its target; it never falls with a higher load.

    With ``n`` replicas of which each does the share ``u`` of what it can, a time is taken to be in
    proportion to ``1 / (1 - u)``: so it is for a step whose time is a line of the requests in it,
    and for waiting in a queue.

    Args:
        measured_s: The time.
        target_s: Its target.
        running: How many replicas serve.
        fullness: How many of them would be full with the requests of all.
        calls: The most calls at once. More replicas than that make nothing faster.
        is_draining: Fewer and fewer requests wait, so the time will fall by itself.
    """
    if not running:
        number = 1.0
    elif measured_s > target_s:
        number = running * (1.0 if is_draining else min(measured_s / target_s, _GROWTH_MAX))
    else:
        # What (1 - u) must be with fewer, so that the time is still well below its target.
        free = max(0.0, 1 - fullness / running) * measured_s / (_TARGET_SHARE * target_s)
        least = fullness / (1 - free) if free < 1 else running
        number = min(running, max(least, fullness / _FULLNESS_MAX))
    return min(max(number, 1.0), calls)
