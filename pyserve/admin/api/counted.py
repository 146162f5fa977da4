"""Reads the metrics of a node's processes into the counts of a snapshot. Pure.

They are the families that Prometheus scrapes, so the page and a dashboard cannot differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyserve.admin.api.snapshot import Batches, Cache, Routed, Steps
from pyserve.admin.histograms import Histogram
from pyserve.observe.metrics import MODELS, Family, Sample
from pyserve.observe.metrics.catalogue import OF_COUNTS

_ROUTER = "pyserve_router_"
_COUNTERS = [metric for metric in OF_COUNTS if metric.kind == "counter"]
# Counters of a deployment's router, by their names here.
_COUNTS = {
    (family := metric.name.removesuffix("_total")): family.removeprefix(_ROUTER)
    for metric in _COUNTERS
    if set(metric.counts.values()) == {""}
}
# Counters with a label that divides them, by that label.
_COUNTS_BY = {
    metric.name.removesuffix("_total"): metric.own_label
    for metric in _COUNTERS
    if set(metric.counts.values()) != {""}
}
_CODES = "pyserve_router_ended_calls"
_RELEASES = "pyserve_router_releases"
_ATTEMPTS = "pyserve_router_attempt_seconds"
_PARKED, _IN_FLIGHT = "pyserve_router_parked_calls", "pyserve_router_in_flight_calls"
# Histograms, by the label that distinguishes them.
_TIMES = {
    "pyserve_router_call_seconds": "outcome",
    "pyserve_router_parked_seconds": "",
    "pyserve_router_prediction_error_seconds": "direction",
}
_ENDS = "pyserve_replica_ended_calls"
_METHODS = "pyserve_replica_call_seconds"
_BATCH_TIMES = {
    "pyserve_batch_size": "sizes",
    "pyserve_batch_wait_seconds": "waits",
    "pyserve_batch_execution_seconds": "runs",
}
_BATCHES, _BATCH_WAITING = "pyserve_batches", "pyserve_batch_waiting_calls"
_STEP_TIMES = {
    "pyserve_step_seconds": "runs",
    "pyserve_step_size": "sizes",
    "pyserve_step_first_value_seconds": "first_values",
    "pyserve_step_value_seconds": "next_values",
}
_STEP_COUNTS = {
    "pyserve_step_admissions": "admissions",
    "pyserve_step_preemptions": "preemptions",
}
_STEP_HELD = {
    "pyserve_step_running_requests": "running",
    "pyserve_step_parked_requests": "parked",
    "pyserve_step_waiting_requests": "waiting",
    "pyserve_step_waiting_cost": "waiting_cost",
    "pyserve_step_budget_used": "used",
    "pyserve_step_budget_max": "budget",
}
_CACHE_KEYS = "pyserve_replica_cache_keys"
# Metrics of one function's models in a replica, with their names here; counters have the label that
# distinguishes them.
_CACHES = {
    "pyserve_models_loaded": "models",
    "pyserve_models_max": "max",
    "pyserve_models_bytes": "bytes",
    "pyserve_models_loading": "loading",
    "pyserve_models_waiting": "waiting",
    "pyserve_model_evictions": "evictions",
    "pyserve_model_reloads": "reloads",
}
_CACHES_BY = {"pyserve_model_requests": "result", "pyserve_model_loads": "outcome"}
_LOAD_TIMES = "pyserve_model_load_seconds"
_Edge = tuple[str, str]
_Counts = defaultdict[str, int]


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts for a snapshot, see ``MeshSnapshot``."""

    edges: Mapping[_Edge, Routed]
    ends: Mapping[str, Mapping[str, int]]
    methods: Mapping[str, Mapping[str, Histogram]]
    batches: Mapping[tuple[str, str], Batches]
    steps: Mapping[tuple[str, str], Steps]
    kept: Mapping[str, int]
    caches: Mapping[tuple[str, str, str], Cache]


def read_families(families: Iterable[Family]) -> Counted:
    """Return the counts of routers and replicas."""
    edges: defaultdict[_Edge, _Edges] = defaultdict(_Edges)
    ends: defaultdict[str, _Counts] = defaultdict(_counts)
    methods: defaultdict[str, defaultdict[str, Buckets]] = defaultdict(_buckets)
    batches: defaultdict[tuple[str, str], _Batches] = defaultdict(_Batches)
    steps: defaultdict[tuple[str, str], _Steps] = defaultdict(_Steps)
    kept = _counts()
    caches: defaultdict[tuple[str, str, str], _Cache] = defaultdict(_Cache)
    for family in families:
        for sample in family.samples:
            labels = sample.labels
            if family.name.startswith(_ROUTER):
                edges[labels["caller"], _target(labels)].take(family.name, sample)
            elif family.name == _ENDS:
                ends[labels["replica"]][labels["code"]] += int(sample.value)
            elif family.name == _METHODS:
                methods[labels["replica"]][labels["method"]].take(sample)
            elif family.name in _BATCH_TIMES or family.name in (_BATCHES, _BATCH_WAITING):
                batches[_target(labels), labels["function"]].take(family.name, sample)
            elif family.name.startswith("pyserve_step_"):
                steps[_target(labels), labels["function"]].take(family.name, sample)
            elif family.name == _CACHE_KEYS:
                kept[_target(labels)] += int(sample.value)
            elif family.name.startswith("pyserve_model"):
                key = _target(labels), labels["replica"], labels["function"]
                caches[key].take(family.name, sample)
    return Counted(
        # An ingress knows all deployments, including those that are never called through it.
        {edge: each.routed() for edge, each in edges.items() if each.counts["calls"]},
        {name: dict(each) for name, each in ends.items()},
        {
            name: {method: times.histogram() for method, times in each.items()}
            for name, each in methods.items()
        },
        {key: each.batches() for key, each in batches.items()},
        {key: each.steps() for key, each in steps.items()},
        dict(kept),
        {key: each.cache() for key, each in caches.items()},
    )


class Buckets:
    """A histogram that comes as samples, cumulative over its bounds."""

    def __init__(self) -> None:
        self._upto: dict[float, float] = {}
        self._sum = 0.0

    def take(self, sample: Sample) -> None:
        """Take one sample of the family; those of several processes are added up."""
        if sample.suffix == "_bucket":
            bound = float(sample.labels["le"])
            self._upto[bound] = self._upto.get(bound, 0.0) + sample.value
        elif sample.suffix == "_sum":
            self._sum += sample.value

    def histogram(self) -> Histogram:
        """Return it; the last bound is infinite, and left out."""
        bounds = sorted(self._upto)
        upto = [int(self._upto[bound]) for bound in bounds]
        counts = [now - before for before, now in zip([0, *upto], upto, strict=False)]
        return Histogram.of(bounds[:-1], counts, self._sum) if bounds else Histogram()


def _counts() -> _Counts:
    return defaultdict(int)


def _buckets() -> defaultdict[str, Buckets]:
    return defaultdict(Buckets)


@dataclass(slots=True)
class _Edges:
    """Collects the samples of one edge, until all of them have been seen."""

    counts: _Counts = field(default_factory=_counts)
    codes: _Counts = field(default_factory=_counts)
    releases: _Counts = field(default_factory=_counts)
    in_flight: _Counts = field(default_factory=_counts)
    times: defaultdict[str, Buckets] = field(default_factory=_buckets)
    attempts: defaultdict[str, Buckets] = field(default_factory=_buckets)
    parked: int = 0

    def take(self, name: str, sample: Sample) -> None:
        labels = sample.labels
        if name in _TIMES:
            self.times[labels.get(_TIMES[name], name)].take(sample)
            return
        if name == _ATTEMPTS:
            self.attempts[labels["replica"]].take(sample)
            return
        value = int(sample.value)
        if name in _COUNTS:
            self.counts[_COUNTS[name]] += value
        elif name in _COUNTS_BY:
            self.counts[labels[_COUNTS_BY[name]]] += value
        elif name == _CODES:
            self.codes[labels["code"]] += value
        elif name == _RELEASES:
            self.releases[labels["reason"]] += value
        elif name == _PARKED:
            self.parked += value
        elif name == _IN_FLIGHT:
            self.in_flight[labels["replica"]] += value

    def routed(self) -> Routed:
        times = {name: each.histogram() for name, each in self.times.items()}
        nothing = Histogram()
        return Routed(
            counts=dict(self.counts),
            codes=dict(self.codes),
            answered=times.get("ok", nothing),
            failed=times.get("failed", nothing),
            parked=times.get("pyserve_router_parked_seconds", nothing),
            early=times.get("early", nothing),
            late=times.get("late", nothing),
            releases=dict(self.releases),
            replicas={name: each.histogram() for name, each in self.attempts.items()},
            in_flight=dict(self.in_flight),
            parked_now=self.parked,
        )


@dataclass(slots=True)
class _Batches:
    """The same of one batched function."""

    reasons: _Counts = field(default_factory=_counts)
    times: defaultdict[str, Buckets] = field(default_factory=_buckets)
    waiting: int = 0

    def take(self, name: str, sample: Sample) -> None:
        if name in _BATCH_TIMES:
            self.times[_BATCH_TIMES[name]].take(sample)
        elif name == _BATCHES:
            self.reasons[sample.labels["reason"]] += int(sample.value)
        else:
            self.waiting += int(sample.value)

    def batches(self) -> Batches:
        times = {name: each.histogram() for name, each in self.times.items()}
        return Batches(reasons=dict(self.reasons), waiting_now=self.waiting, **times)


@dataclass(slots=True)
class _Steps:
    """The same of one continuously batched class."""

    counts: _Counts = field(default_factory=_counts)
    held: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    times: defaultdict[str, Buckets] = field(default_factory=_buckets)

    def take(self, name: str, sample: Sample) -> None:
        if name in _STEP_TIMES:
            self.times[_STEP_TIMES[name]].take(sample)
        elif name in _STEP_COUNTS:
            self.counts[_STEP_COUNTS[name]] += int(sample.value)
        elif name in _STEP_HELD:
            self.held[_STEP_HELD[name]] += sample.value

    def steps(self) -> Steps:
        times = {name: each.histogram() for name, each in self.times.items()}
        return Steps(counts=dict(self.counts), held=dict(self.held), **times)


@dataclass(slots=True)
class _Cache:
    """The same of the models of one function in one replica."""

    counts: _Counts = field(default_factory=_counts)
    load_times: Buckets = field(default_factory=Buckets)
    models: dict[str, dict[str, float]] = field(default_factory=dict)

    def take(self, name: str, sample: Sample) -> None:
        if name == MODELS:
            model = self.models.setdefault(sample.labels["model"], {})
            model[sample.suffix.removeprefix("_")] = sample.value
        elif name == _LOAD_TIMES:
            self.load_times.take(sample)
        elif name in _CACHES:
            self.counts[_CACHES[name]] += int(sample.value)
        elif name in _CACHES_BY:
            self.counts[sample.labels[_CACHES_BY[name]]] += int(sample.value)

    def cache(self) -> Cache:
        return Cache(dict(self.counts), self.load_times.histogram(), self.models)


def _target(labels: Mapping[str, str]) -> str:
    return f"{labels['application']}/{labels['deployment']}"
