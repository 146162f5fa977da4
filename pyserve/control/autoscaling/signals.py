"""The load that replicas and routers report for one deployment, and totals of it. Pure."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pyserve.config import AggregationFunction, AutoscalingConfig, TimeStampedValue
from pyserve.control.autoscaling.arrivals import Arrivals, SeasonalCounts, Series
from pyserve.control.autoscaling.value_times import StepReport, ValueTimes
from pyserve.types import ReplicaId

# Growing looks back at least so long: five reports, so that one of them decides nothing.
GROWTH_WINDOW_S = 0.5
# Of each metric of a replica; at one report a second, a quarter of an hour.
_VALUES_MAX = 1000
# Names of a replica's metrics; each costs a series.
_METRICS_MAX = 64


@dataclass(slots=True)
class _Replica:
    ongoing: int
    calls: int
    busy_s: float
    cost: float = 0.0


@dataclass(slots=True)
class _Router:
    parked: int = 0
    offered: int = 0


class Signals:
    """The load of one deployment.

    Args:
        config: Of its scaling.
        now: Seconds, on any clock that never goes back.

    Attributes:
        arrivals, seasons: The calls that routers were offered, of the last minutes and hour.
        values: The times of the values of a continuously batched class.
    """

    def __init__(self, config: AutoscalingConfig, now: float) -> None:
        self._function = config.aggregation_function
        look_back_s = config.look_back_period_s
        self._look_back_s = look_back_s
        self._recent = Series(min(look_back_s, max(config.upscale_delay_s, GROWTH_WINDOW_S)))
        self._whole = Series(look_back_s)
        self._recent_cost = Series(min(look_back_s, max(config.upscale_delay_s, GROWTH_WINDOW_S)))
        self._whole_cost = Series(look_back_s)
        self._mean_cost = 0.0  # Of a call, when some were last in replicas.
        self.arrivals = Arrivals(now)
        self.seasons = SeasonalCounts(now)
        self.values = ValueTimes(config, now)
        self._replicas: dict[ReplicaId, _Replica] = {}
        self._routers: dict[str, _Router] = {}
        self._values: dict[str, dict[ReplicaId, deque[tuple[float, float]]]] = defaultdict(dict)
        self._services = Services(now)

    def on_replica(
        self,
        replica: ReplicaId,
        *,
        ongoing: int,
        calls: int,
        busy_s: float,
        now: float,
        cost: float = 0.0,
        steps: StepReport | None = None,
    ) -> None:
        """Take in a replica's running calls, what they cost, and its values.

        Other counts are since it began to serve.
        """
        before = self._replicas.get(replica)
        if before is None:
            # Its counters run since its start: earlier calls are not evidence of the present ones.
            before = self._replicas[replica] = _Replica(ongoing, calls, busy_s)
        if calls >= before.calls and busy_s >= before.busy_s:
            # Calls that began, less by how many more are on the way, are those that ended.
            started = calls - before.calls
            self._work(
                busy_s=busy_s - before.busy_s,
                started=started,
                finished=max(started - (ongoing - before.ongoing), 0),
                now=now,
            )
        self.values.on_calls(max(calls - before.calls, 0), now)
        if steps is not None:
            self.values.on_replica(replica, steps, now)
        before.ongoing, before.calls, before.busy_s = ongoing, calls, busy_s
        before.cost = cost
        self._count(now)

    def on_metrics(self, replica: ReplicaId, values: Mapping[str, float], now: float) -> None:
        """Take in the result of a replica's ``record_autoscaling_stats``."""
        for name, value in values.items():
            if name not in self._values and len(self._values) >= _METRICS_MAX:
                continue
            of_replica = self._values[name].setdefault(replica, deque(maxlen=_VALUES_MAX))
            of_replica.append((now, value))

    def on_router(self, router: str, *, parked: int, offered: int, now: float) -> None:
        """Take in how many calls wait in a router, and how many it was offered since its start."""
        before = self._routers.get(router)
        if before is None:
            # Calls that it counted before this deployment was scaled are not part of today's load.
            before = self._routers[router] = _Router(offered=max(offered - parked, 0))
        if offered >= before.offered:
            self.arrivals.add(offered - before.offered, now)
            self.seasons.add(offered - before.offered, now)
        before.parked, before.offered = parked, offered
        self._count(now)

    def drop_router(self, router: str, now: float) -> None:
        """Drop a router that is gone, together with its calls."""
        if self._routers.pop(router, None) is not None:
            self._count(now)

    def take_over(self, before: Signals, now: float) -> None:
        """Continue from another object's reports, for the same deployment with other options."""
        self.arrivals, self.seasons = before.arrivals, before.seasons
        self._services = before._services
        self._replicas, self._routers, self._values = (
            before._replicas,
            before._routers,
            before._values,
        )
        self.values.take_over(before.values)
        self._count(now)

    def keep_replicas(self, running: Collection[ReplicaId], now: float) -> None:
        """Forget replicas that no longer serve: other replicas do not get their remaining calls."""
        gone = [each for each in self._replicas if each not in running]
        for replica in gone:
            del self._replicas[replica]
        for of_name in self._values.values():
            for replica in [each for each in of_name if each not in running]:
                del of_name[replica]
        self.values.keep_replicas(running, now)
        if gone:
            self._count(now)

    @property
    def parked(self) -> int:
        """Calls that wait in routers now."""
        return sum(each.parked for each in self._routers.values())

    @property
    def ongoing(self) -> int:
        """Calls that run in replicas now."""
        return sum(each.ongoing for each in self._replicas.values())

    @property
    def total(self) -> int:
        """Calls that wait or run now."""
        return self.parked + self.ongoing

    @property
    def total_cost(self) -> float:
        """What the calls cost that wait or run now; those in routers as the mean of the others."""
        cost = sum(each.cost for each in self._replicas.values())
        if self.ongoing and cost:
            self._mean_cost = cost / self.ongoing
        return cost + self.parked * self._mean_cost

    def service_s(self, now: float) -> float | None:
        """Return how long a replica takes for a call, learnt; None: no call has ended yet."""
        self._look(now)
        return self._services.mean_s

    def places_free(self, each: float) -> float:
        """Return how many places are certainly free, given the places of each replica."""
        return sum(max(each - replica.ongoing, 0) for replica in self._replicas.values())

    def total_recently(self, now: float) -> float:
        """Return the concurrent calls on which growing is decided."""
        return self._recent.aggregate(self._function, now)

    def cost_recently(self, now: float) -> float:
        """Return the cost of concurrent calls on which growing is decided."""
        return self._recent_cost.aggregate(self._function, now)

    def cost_over_period(self, now: float) -> float:
        """Return the cost of concurrent calls over the whole look-back period."""
        return self._whole_cost.aggregate(self._function, now)

    def total_over_period(self, now: float) -> float:
        """Return the concurrent calls over the whole look-back period."""
        return self._whole.aggregate(self._function, now)

    def most_over_period(self, now: float) -> float:
        """Return the most concurrent calls in the look-back period."""
        return self._whole.aggregate(AggregationFunction.MAX, now)

    def aggregated_metrics(self, now: float) -> dict[str, dict[ReplicaId, float]]:
        """Return one number for each metric and replica."""
        fold = {"max": max, "min": min}.get(str(self._function), _mean)
        return {
            name: {
                replica: fold([value for _, value in values]) for replica, values in each.items()
            }
            for name, each in self._since(now).items()
        }

    def raw_metrics(
        self, now: float, unix_now: float
    ) -> dict[str, dict[ReplicaId, list[TimeStampedValue]]]:
        """Return the values of each metric and replica, oldest first."""
        return {
            name: {
                replica: [TimeStampedValue(unix_now - now + at, value) for at, value in values]
                for replica, values in each.items()
            }
            for name, each in self._since(now).items()
        }

    def _since(self, now: float) -> dict[str, dict[ReplicaId, list[tuple[float, float]]]]:
        """Return the values in the look-back period; the last one counts however old it is."""
        return {
            name: {
                replica: [each for each in values if each[0] >= now - self._look_back_s]
                or [values[-1]]
                for replica, values in of_replica.items()
            }
            for name, of_replica in self._values.items()
            if of_replica
        }

    def _count(self, now: float) -> None:
        self._recent.set(self.total, now)
        self._whole.set(self.total, now)
        self.values.on_parked(self.parked, now)
        cost = self.total_cost
        self._recent_cost.set(cost, now)
        self._whole_cost.set(cost, now)

    def _work(self, *, busy_s: float, started: float, finished: float, now: float) -> None:
        self._look(now)
        self._services.add(busy_s=busy_s, started=started, finished=finished)
        self.seasons.add_work(busy_s, (started + finished) / 2, now)

    def _look(self, now: float) -> None:
        changed_at = self._services.look(self.ongoing, now)
        if changed_at is not None:
            # How many came of other calls says nothing of how many come of these.
            self.arrivals.begin_again(changed_at)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


# The service times of calls, and when they have changed.
#
# An adaptive window: evidence is kept for as long as its older and its newer part agree, and the
# older part is dropped if they do not (A. Bifet and R. Gavaldà, "Learning from time-changing data
# with adaptive windowing", 2007). So what was learnt from earlier calls is gone as soon as there is
# evidence against it, however much of it there was.

BIN_S = 0.5
# Evidence of so many bins: of a minute, and of more where hardly any call began or ended.
_BINS_MAX = 120
# Parts differ where chance would make them do so once in 16 000 looks: with two looks a second and
# seven parts to compare that is once in twenty minutes, and then a minute has to be learnt again.
_DEVIATIONS = 4.0
# How often replicas sample the running calls to measure their time: a call that a sample meets
# counts for one interval, and a call that none meets for nothing.
_LOOK_S = 0.1


@dataclass(slots=True)
class _Bin:
    """Half a second, or more if no call has begun or ended in it.

    Attributes:
        begun: When it began.
        busy_s: The time that calls spent in replicas.
        started, finished: Calls that began and that ended.
    """

    begun: float
    busy_s: float = 0.0
    started: float = 0.0
    finished: float = 0.0

    def add(self, other: _Bin, sign: float = 1.0) -> None:
        self.busy_s += sign * other.busy_s
        self.started += sign * other.started
        self.finished += sign * other.finished


class Services:
    """Times of calls, from counts alone.

    Args:
        now: When counting begins.
    """

    def __init__(self, now: float) -> None:
        self._begun = now  # Of the bin that is not over.
        self._bins: deque[_Bin] = deque(maxlen=_BINS_MAX)
        self._last = _Bin(now)
        self._whole = _Bin(now)  # The sum of the bins that are over.
        self._ongoing = 0
        self._mean_s: float | None = None

    @property
    def mean_s(self) -> float | None:
        """How long a call takes; None: no call has ended yet."""
        return self._mean_s

    def add(self, *, busy_s: float, started: float, finished: float) -> None:
        """Add the time that calls have spent, and the numbers that began and ended since then."""
        self._last.busy_s += busy_s
        self._last.started += started
        self._last.finished += finished

    def look(self, ongoing: int, now: float) -> float | None:
        """Learn from what was added.

        Args:
            ongoing: Calls that run now.
            now: Seconds.

        Returns:
            Since when calls differ from those before; None: they do not.
        """
        self._ongoing = ongoing
        changed = None
        passed = int((now - self._begun) / BIN_S)
        if passed > 0:
            self._begun += passed * BIN_S
            changed = self._forget_others()
            # A very long call must not push all others out of the window.
            if self._last.started or self._last.finished:
                self._bins.append(self._last)
                self._whole = _sum(self._bins)
                self._last = _Bin(self._begun)
            elif not self._last.busy_s:
                self._last.begun = self._begun
        self._learn()
        return changed

    def _learn(self) -> None:
        total = _Bin(self._begun)
        total.add(self._whole)
        total.add(self._last)
        if self._mean_s is None and total.finished < 1:
            return
        # By Little's law (J. D. C. Little, 1961). Of a call that has begun or ended in the window,
        # but not both, half of the time is in it in the mean, so it counts for half a call.
        calls = (total.finished + max(total.started, self._ongoing)) / 2
        if calls >= 0.5 and total.busy_s > 0:
            self._mean_s = total.busy_s / calls

    def _forget_others(self) -> float | None:
        """Drop the bins whose calls differ from the newest ones; return since when they differ."""
        bins = [*self._bins, self._last]
        older, newer = _sum(bins), _Bin(self._begun)
        for count, each in enumerate(reversed(bins[1:]), 1):
            older.add(each, -1.0)
            newer.add(each)
            # Windows of one, two, four and so on.
            is_window = count & (count - 1) == 0
            if is_window and _differ(older, newer, self._ongoing, self._begun - each.begun):
                self._bins = deque(bins[-count:-1], maxlen=_BINS_MAX)
                self._whole = _sum(self._bins)
                return each.begun
        return None


def _differ(before: _Bin, after: _Bin, ongoing: int, newer_s: float) -> bool:
    """Return whether calls take longer or less long in the last ``newer_s`` for certain."""
    calls = (before.started + before.finished) / 2
    if calls < 1 or before.busy_s <= 0:
        return False
    # How few calls these are does not matter: the fewer there are, the less is lost.
    mean_s, unmet = before.busy_s / calls, _LOOK_S / before.busy_s
    # Calls that ran before and have not ended are the long ones, so they prove nothing. The rest of
    # the time belongs to calls that have begun since, and those have not all ended yet.
    left_over = max(after.finished + ongoing - after.started, 0)
    busy_s = after.busy_s - left_over * newer_s
    if after.started and busy_s > 0:
        variance = 1 / after.started + _LOOK_S / busy_s + unmet
        if _is_beyond_chance(busy_s / after.started / mean_s, variance):
            return True
    # With those alone that have begun and ended, the time is too long rather than too short.
    whole = min(after.started, after.finished)
    if whole < 1:
        return False
    # Where no look has met a call, the next one may.
    ratio = mean_s * whole / (after.busy_s + _LOOK_S)
    return _is_beyond_chance(ratio, (1 + _LOOK_S / mean_s) / whole + unmet)


def _is_beyond_chance(ratio: float, variance: float) -> bool:
    """Return whether two means of that relative variance hardly ever differ by that factor.

    Times are taken for exponential ones: the mean of n has the relative variance 1 / n. Of calls
    that are met by chance at n looks, it is 1 / n more.
    """
    return math.log(ratio) > _DEVIATIONS * math.sqrt(variance)


def _sum(bins: Iterable[_Bin]) -> _Bin:
    total = _Bin(0.0)
    for each in bins:
        total.add(each)
    return total
