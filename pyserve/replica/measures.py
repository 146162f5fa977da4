"""A replica's metrics, and where they are shown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserve.api.context import ReplicaContext
from pyserve.batching import PROCESS_ACTIVITY
from pyserve.multiplexing import PROCESS_DIRECTORY
from pyserve.multiplexing.cache import UNLIMITED, CacheStats
from pyserve.multiplexing.loader import Loader
from pyserve.observe.metrics import (
    MODELS,
    Family,
    ProcessMetrics,
    Sample,
    Scrape,
    ScrapePoint,
    Tally,
)
from pyserve.observe.metrics.families import code_name
from pyserve.observe.metrics.user import PROCESS_USER_METRICS
from pyserve.replica.hooks import HealthMeasures
from pyserve.stepping.drivers import PROCESS_DRIVERS, Driver

if TYPE_CHECKING:
    from pyserve.batching.queue import BatchQueue
    from pyserve.replica.asgi.routes import RouteMeasures
    from pyserve.replica.watchdog import StallStats

_LOGGER = logging.getLogger(__name__)
# By the counters of `_router.Server.stats`.
_BROKEN = {
    "cancelled_by_client": "client",
    "deadlines_exceeded": "deadline",
    "shut_down": "shutdown",
}
_LOADS = {
    "loaded": "loads",
    "failed": "loads_failed",
    "cancelled": "loads_cancelled",
    "dropped": "loads_dropped",
}

OWN_METHODS = "/pyserve."
"""The prefix of the paths of methods that the mesh itself calls."""

# Of one function, those that were used most. Arbitrary: more of them fit on no page.
_MODELS_TOLD_MAX = 100

Counts = Callable[[], Mapping[str, int]]


class ReplicaMetrics:
    """The metrics of one replica.

    Args:
        metrics: Takes them.

    Attributes:
        health: Of its checks.
        reconfigures: How long new configurations took.
        initialization_s: How long it took until it was ready; ``None``: it is not yet.
    """

    def __init__(self, metrics: ProcessMetrics) -> None:
        self.health = HealthMeasures()
        self.reconfigures = Tally()
        self.initialization_s: float | None = None
        self._metrics = metrics
        self._point: ScrapePoint | None = None
        self._calls = 0
        self._ends: list[Callable[[], None]] = []
        for source in (
            self._add_life,
            add_batches,
            add_steps,
            add_models,
            PROCESS_USER_METRICS.add_to,
        ):
            metrics.add(source)

    def show(self, context: ReplicaContext, folder: Path | None, token: bytes) -> None:
        """Answer scrapes from here on, while user code is brought up too.

        Args:
            context: Who the replica is.
            folder: Where the socket goes; ``None``: metrics are shown otherwise, or not at all.
            token: Of the mesh.
        """
        self._metrics.labels.update(
            application=context.app_name, deployment=context.deployment, replica=context.replica_id
        )
        if folder is None:
            return
        try:
            self._point = ScrapePoint(self._metrics, folder, token)
        except OSError as error:
            _LOGGER.warning("no metrics of this replica are shown: %s", error)

    def serve(
        self,
        *,
        counts: Counts,
        measures: Callable[[], Mapping[str, Mapping[str, Any]]],
        limit: Callable[[], int],
        loop_counts: Counts,
        stalls: Callable[[], StallStats] | None,
        routes: RouteMeasures | None = None,
    ) -> None:
        """Report calls too, until ``end_serving``.

        Args:
            counts: ``_router.Server.stats``.
            measures: ``_router.Server.measures``.
            limit: Returns how many calls there may be at once.
            loop_counts: ``_router.Endpoint.stats`` of the loop of user code.
            stalls: Of that loop; ``None``: they are not watched for.
            routes: Of the web application; ``None``: there is none.
        """

        def add(scrape: Scrape) -> None:
            found = measures()
            own = sum(_ended(each) for path, each in found.items() if _is_own(path))
            # One that is on its way was counted, and has not ended: what is told never falls.
            self._calls = max(self._calls, counts()["calls"] - own)
            add_calls(scrape, {**counts(), "calls": self._calls}, limit())
            add_methods(scrape, found)
            if routes is not None:
                add_routes(scrape, routes)
            add_loop(scrape, loop_counts(), None if stalls is None else stalls())

        self._ends.append(self._metrics.add(add))

    def end_serving(self) -> None:
        """Drop the arguments of ``serve``."""
        while self._ends:
            self._ends.pop()()

    def close(self) -> None:
        """Answer no more. Idempotent."""
        if self._point is not None:
            self._point.close()

    def _add_life(self, scrape: Scrape) -> None:
        if self.initialization_s is not None:
            scrape.add("pyserve_replica_initialization_seconds", self.initialization_s)
        scrape.add_histogram("pyserve_replica_reconfigure_seconds", self.reconfigures)
        scrape.add_histogram("pyserve_replica_health_check_seconds", self.health.times)
        for result, value in (("passed", self.health.passed), ("failed", self.health.failed)):
            scrape.add("pyserve_replica_health_checks_total", value, result=result)


def add_calls(scrape: Scrape, counts: Mapping[str, int], limit: int) -> None:
    """Add what the native server has counted."""
    scrape.add("pyserve_replica_in_flight_calls", counts["in_flight"])
    scrape.add("pyserve_replica_calls_max", limit)
    scrape.add("pyserve_replica_calls_total", counts["calls"])
    scrape.add("pyserve_replica_refused_calls_total", counts["refused"])
    scrape.add("pyserve_replica_connections", counts["connections"])
    scrape.add("pyserve_replica_cache_keys", counts["cache_keys"])
    scrape.add("pyserve_replica_cache_dropped_total", counts["cache_dropped"])
    for name, reason in _BROKEN.items():
        scrape.add("pyserve_replica_broken_calls_total", counts[name], reason=reason)


def add_methods(scrape: Scrape, measures: Mapping[str, Mapping[str, Any]]) -> None:
    """Add how the calls of each method ended, and how long they took.

    Calls by the mesh itself (such as by ``pyserve explain``) are not counted.
    """
    for method, measured in measures.items():
        if _is_own(method):
            continue
        scrape.add_native("pyserve_replica_call_seconds", measured["latency"], method=method)
        ends: dict[int | str, int] = {}
        ends.update(measured["codes"])
        ends.update(measured["http"])
        for code, value in ends.items():
            scrape.add(
                "pyserve_replica_ended_calls_total", value, method=method, code=code_name(code)
            )
        scrape.add(
            "pyserve_replica_ended_calls_total", measured["left"], method=method, code="left"
        )
        scrape.add("pyserve_replica_request_bytes_total", measured["request_bytes"], method=method)
        scrape.add(
            "pyserve_replica_response_bytes_total", measured["response_bytes"], method=method
        )


def add_routes(scrape: Scrape, routes: RouteMeasures) -> None:
    """Add the requests of a web application by route."""
    # Copies, as the loop of user code goes on meanwhile.
    for route, tally in tuple(routes.times.items()):
        scrape.add_histogram("pyserve_replica_route_seconds", tally, route=route)
    for (route, code), value in tuple(routes.answers.items()):
        scrape.add("pyserve_replica_route_answers_total", value, route=route, code=code)


def _is_own(method: str) -> bool:
    return method.startswith(OWN_METHODS)


def _ended(measured: Mapping[str, Any]) -> int:
    """Return how many calls of a method of gRPC have ended."""
    return int(sum(measured["codes"].values()) + measured["left"])


def add_loop(scrape: Scrape, counts: Mapping[str, int], stalls: StallStats | None) -> None:
    """Add the metrics of user code's loop."""
    scrape.add("pyserve_replica_loop_events_total", counts["events"])
    scrape.add("pyserve_replica_loop_wakeups_total", counts["wakeups"])
    scrape.add("pyserve_replica_loop_queue_length_max", counts["queue_length_max"])
    if stalls is not None:
        scrape.add("pyserve_replica_loop_stalls_total", stalls.count)
        scrape.add("pyserve_replica_loop_stall_seconds_total", stalls.total_s)


def add_batches(scrape: Scrape) -> None:
    """Add what the batched functions of this process did."""
    for function, queues in _by_label(PROCESS_ACTIVITY.queues()).items():
        _add_batches_of(scrape, function, queues)


def _add_batches_of(scrape: Scrape, function: str, queues: list[BatchQueue]) -> None:
    """Add those of one function, which has a queue for each instance and loop."""
    for queue in queues:
        measures, stats = queue.measures, queue.stats()
        scrape.add_histogram("pyserve_batch_wait_seconds", measures.waits, function=function)
        scrape.add_histogram("pyserve_batch_execution_seconds", measures.runs, function=function)
        scrape.add_histogram("pyserve_batch_size", measures.sizes, function=function)
        scrape.add("pyserve_batches_failed_total", measures.failed, function=function)
        for reason, value in stats.reasons.items():
            scrape.add("pyserve_batches_total", value, function=function, reason=str(reason))
        dropped = [("cancelled", stats.cancelled), *stats.dropped.items()]
        for why, value in dropped:
            name = "pyserve_batch_dropped_calls_total"
            scrape.add(name, value, function=function, reason=str(why))
        scrape.add("pyserve_batch_waiting_calls", stats.waiting, function=function)
        scrape.add("pyserve_batch_running", stats.running, function=function)
    size_max = max(queue.size_max for queue in queues)
    scrape.add("pyserve_batch_size_max", size_max, function=function)


def add_steps(scrape: Scrape) -> None:
    """Add what the continuously batched instances of this process did, and hold."""
    for function, drivers in _by_label([*PROCESS_DRIVERS]).items():
        for driver in drivers:
            _add_driver(scrape, function, driver)


def _add_driver(scrape: Scrape, function: str, driver: Driver) -> None:
    measures, load, budget = driver.measures, driver.load(), driver.options.budget
    for name, tally in (
        ("pyserve_step_seconds", measures.runs),
        ("pyserve_step_size", measures.sizes),
        ("pyserve_step_first_value_seconds", measures.first_values),
        ("pyserve_step_value_seconds", measures.next_values),
    ):
        scrape.add_histogram(name, tally, function=function)
    for name, value in (
        ("pyserve_steps_total", load.steps),
        ("pyserve_step_running_requests", load.running),
        ("pyserve_step_parked_requests", load.parked),
        ("pyserve_step_waiting_requests", load.waiting),
        ("pyserve_step_waiting_cost", load.waiting_cost),
        ("pyserve_step_budget_used", load.used),
        ("pyserve_step_admissions_total", load.admitted),
        ("pyserve_step_preemptions_total", load.preempted),
    ):
        scrape.add(name, value, function=function)
    if budget is not None:
        scrape.add("pyserve_step_budget_max", budget, function=function)


def add_models(scrape: Scrape) -> None:
    """Add what the model caches of this process did, and hold."""
    loaders = [each for each in PROCESS_DIRECTORY.caches() if isinstance(each, Loader)]
    for function, of_function in _by_label(loaders).items():
        for loader in of_function:
            _add_loader(scrape, function, loader)


def _add_loader(scrape: Scrape, function: str, loader: Loader[Any]) -> None:
    stats: CacheStats = loader.stats()
    scrape.add_histogram("pyserve_model_load_seconds", loader.load_times, function=function)
    scrape.add_histogram("pyserve_model_unload_seconds", loader.unload_times, function=function)
    for result, value in (("hit", stats.hits), ("miss", stats.misses)):
        scrape.add("pyserve_model_requests_total", value, function=function, result=result)
    for outcome, name in _LOADS.items():
        value = getattr(stats, name)
        scrape.add("pyserve_model_loads_total", value, function=function, outcome=outcome)
    scrape.add("pyserve_model_evictions_total", stats.evictions, function=function)
    scrape.add("pyserve_model_unloads_total", stats.unloads, function=function)
    scrape.add("pyserve_model_reloads_total", stats.reloads, function=function)
    scrape.add("pyserve_models_loaded", stats.models, function=function)
    if loader.models_max != UNLIMITED:
        scrape.add("pyserve_models_max", loader.models_max, function=function)
    scrape.add("pyserve_models_bytes", stats.bytes_used, function=function)
    scrape.add("pyserve_models_loading", stats.loading, function=function)
    scrape.add("pyserve_models_waiting", stats.waiting, function=function)
    scrape.add("pyserve_models_held", stats.pinned, function=function)
    scrape.add_family(_each_model(function, loader))


def _each_model(function: str, loader: Loader[Any]) -> Family:
    family = Family(MODELS, "unknown", "Each model by itself.")
    entries = sorted(loader.entries(), key=lambda each: each.record.hits, reverse=True)
    for entry in entries[:_MODELS_TOLD_MAX]:
        record, labels = entry.record, {"function": function, "model": entry.model_id}
        for name, value in (
            ("bytes", entry.size_bytes),
            ("hits", record.hits),
            ("misses", record.misses),
            ("loads", record.loads),
            ("evictions", record.evictions),
            ("load_s", record.load_s),
            ("held", not entry.is_evictable),
        ):
            family.samples.append(Sample(f"_{name}", labels, value))
    return family


def _by_label(found: list[Any]) -> dict[str, list[Any]]:
    by_label: dict[str, list[Any]] = {}
    for each in found:
        by_label.setdefault(each.label, []).append(each)
    return by_label
