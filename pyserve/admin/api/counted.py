"""What the processes of a node have counted, as the routers' part of a look. Pure.

The same families that Prometheus scrapes: what a page shows and what a dashboard shows cannot
differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyserve.admin.api.histograms import Histogram
from pyserve.admin.api.look import Routed
from pyserve.observe.metrics import Family, Sample

# Counters of a deployment's router, by what they are called here.
_COUNTS = {
    "pyserve_router_calls": "calls",
    "pyserve_router_attempts": "attempts",
    "pyserve_router_retries": "retries",
    "pyserve_router_retries_refused": "retries_refused",
    "pyserve_router_hedges": "hedges",
    "pyserve_router_ejections": "ejections",
}
# Those that have a label which says what of it, by that label.
_COUNTS_BY = {
    "pyserve_router_ended_attempts": "outcome",
    "pyserve_router_unsent_calls": "reason",
}
_PARKED, _IN_FLIGHT = "pyserve_router_parked_calls", "pyserve_router_in_flight_calls"
_Edge = tuple[str, str]


def edges_of(families: Iterable[Family]) -> dict[_Edge, Routed]:
    """Return what routers have done, by caller and called deployment."""
    found: defaultdict[_Edge, _Edges] = defaultdict(_Edges)
    for family in families:
        if family.name.startswith("pyserve_router_"):
            for sample in family.samples:
                labels = sample.labels
                target = f"{labels['application']}/{labels['deployment']}"
                found[labels["caller"], target].take(family.name, sample)
    # An ingress knows all deployments, also those that nobody calls through it.
    return {edge: each.routed() for edge, each in found.items() if each.counts["calls"]}


@dataclass(slots=True)
class _Edges:
    """What samples say of one edge, until all of them have been seen."""

    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    in_flight: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    parked: int = 0

    def take(self, name: str, sample: Sample) -> None:
        value = int(sample.value)
        if name in _COUNTS:
            self.counts[_COUNTS[name]] += value
        elif name in _COUNTS_BY:
            self.counts[sample.labels[_COUNTS_BY[name]]] += value
        elif name == _PARKED:
            self.parked += value
        elif name == _IN_FLIGHT:
            self.in_flight[sample.labels["replica"]] += value

    def routed(self) -> Routed:
        return Routed(
            counts=dict(self.counts), in_flight=dict(self.in_flight), parked_now=self.parked
        )


class Buckets:
    """A histogram that comes as samples, cumulative over its bounds."""

    def __init__(self) -> None:
        self._upto: dict[float, float] = {}
        self._sum_s = 0.0

    def take(self, sample: Sample) -> None:
        """Take one sample of the family; of several processes they are added up."""
        if sample.suffix == "_bucket":
            bound = float(sample.labels["le"])
            self._upto[bound] = self._upto.get(bound, 0.0) + sample.value
        elif sample.suffix == "_sum":
            self._sum_s += sample.value

    def histogram(self) -> Histogram:
        """Return it; the last bound is infinite, and so no bound."""
        bounds = sorted(self._upto)
        upto = [int(self._upto[bound]) for bound in bounds]
        counts = [now - before for before, now in zip([0, *upto], upto, strict=False)]
        return Histogram.of(bounds[:-1], counts, self._sum_s) if bounds else Histogram()
