"""The load that replicas and routers report for one deployment, and totals of it. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyserve.config import AutoscalingConfig, TimeStampedValue
from pyserve.control.autoscaling.arrivals import Arrivals
from pyserve.control.autoscaling.seasons import SeasonalCounts
from pyserve.control.autoscaling.series import Series
from pyserve.control.autoscaling.services import Services
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
    """

    def __init__(self, config: AutoscalingConfig, now: float) -> None:
        self._function = config.aggregation_function
        look_back_s = config.look_back_period_s
        self._look_back_s = look_back_s
        self._recent = Series(min(look_back_s, max(config.upscale_delay_s, GROWTH_WINDOW_S)))
        self._whole = Series(look_back_s)
        self.arrivals = Arrivals(now)
        self.seasons = SeasonalCounts(now)
        self._replicas: dict[ReplicaId, _Replica] = {}
        self._routers: dict[str, _Router] = {}
        self._values: dict[str, dict[ReplicaId, deque[tuple[float, float]]]] = defaultdict(dict)
        self._services = Services(now)

    def on_replica(
        self, replica: ReplicaId, *, ongoing: int, calls: int, busy_s: float, now: float
    ) -> None:
        """Take in a replica's running calls; the other two counts are since it began to serve."""
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
        before.ongoing, before.calls, before.busy_s = ongoing, calls, busy_s
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
        self._count(now)

    def keep_replicas(self, running: Collection[ReplicaId], now: float) -> None:
        """Forget replicas that no longer serve: other replicas do not get their remaining calls."""
        gone = [each for each in self._replicas if each not in running]
        for replica in gone:
            del self._replicas[replica]
        for of_name in self._values.values():
            for replica in [each for each in of_name if each not in running]:
                del of_name[replica]
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

    def total_over_period(self, now: float) -> float:
        """Return the concurrent calls over the whole look-back period."""
        return self._whole.aggregate(self._function, now)

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
