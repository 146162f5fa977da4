"""A snapshot of a mesh: its controller's status, and the counts of its processes' routers.

Plain values without behaviour beyond differences. All counts begin at the start of their process,
so the changes between two snapshots are differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyserve.admin.histograms import Histogram
from pyserve.wire.v1 import control_pb2

_NOTHING = Histogram()

INGRESS = "ingress"
"""The caller in edges that begin outside of the mesh."""

LEFT = "left"
"""In place of a code: the caller did not wait for one."""

ERRORS = frozenset(
    (
        *("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
        *("RESOURCE_EXHAUSTED", "5xx"),
    )
)
"""Those for which OpenTelemetry's conventions for servers call a span failed, and refusals of the
mesh itself. Others tell a client what is wrong with its request."""


@dataclass(frozen=True, slots=True)
class Routed:
    """What routers have done for one deployment.

    Attributes:
        counts: ``calls``, ``retries``, ``hedges``, ``ejections``, how attempts ended and why
            calls were not sent, by the words of the metrics.
        codes: Calls by the words of gRPC's codes, or "5xx" of plain HTTP, as callers were told.
        answered: Whole calls that did not fail; callers that left are in neither.
        failed: Those that failed, or got no replica.
        parked: Waits in the router.
        early: By how much calls ended sooner than predicted.
        late: By how much they ended later.
        releases: Parked calls that were sent, by the cause of their release.
        replicas: How long attempts took that a replica ended, by its id.
        in_flight: Calls that replicas have now, by id.
        parked_now: Calls that wait for a replica now.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    answered: Histogram = _NOTHING
    failed: Histogram = _NOTHING
    parked: Histogram = _NOTHING
    early: Histogram = _NOTHING
    late: Histogram = _NOTHING
    releases: Mapping[str, int] = field(default_factory=dict)
    replicas: Mapping[str, Histogram] = field(default_factory=dict)
    in_flight: Mapping[str, int] = field(default_factory=dict)
    parked_now: int = 0

    @property
    def ended(self) -> int:
        """Calls that were answered, well or not."""
        return ended(self.codes)

    @property
    def errors(self) -> int:
        """Those of them whose answers blame the service or the mesh."""
        return errors(self.codes)

    def since(self, earlier: Routed) -> Routed:
        """Return the counts since an earlier snapshot."""
        return Routed(
            counts=_counts_since(self.counts, earlier.counts),
            codes=_counts_since(self.codes, earlier.codes),
            answered=self.answered.since(earlier.answered),
            failed=self.failed.since(earlier.failed),
            parked=self.parked.since(earlier.parked),
            early=self.early.since(earlier.early),
            late=self.late.since(earlier.late),
            releases=_counts_since(self.releases, earlier.releases),
            replicas={
                name: each.since(earlier.replicas.get(name, _NOTHING))
                for name, each in self.replicas.items()
            },
            in_flight=self.in_flight,
            parked_now=self.parked_now,
        )

    def plus(self, other: Routed) -> Routed:
        """Return the sum of both."""
        replicas = dict(self.replicas)
        for name, each in other.replicas.items():
            replicas[name] = replicas.get(name, _NOTHING).plus(each)
        return Routed(
            counts=_together(self.counts, other.counts),
            codes=_together(self.codes, other.codes),
            answered=self.answered.plus(other.answered),
            failed=self.failed.plus(other.failed),
            parked=self.parked.plus(other.parked),
            early=self.early.plus(other.early),
            late=self.late.plus(other.late),
            releases=_together(self.releases, other.releases),
            replicas=replicas,
            in_flight=_together(self.in_flight, other.in_flight),
            parked_now=self.parked_now + other.parked_now,
        )


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of one batched function in the replicas of a deployment.

    Attributes:
        reasons: Numbers of batches, by the reason why they were released.
        sizes: How many calls they had; the bounds are numbers of calls.
        waits: How long the oldest call of each waited.
        runs: How long they took.
        waiting_now: Calls that wait for a batch now.
    """

    reasons: Mapping[str, int] = field(default_factory=dict)
    sizes: Histogram = _NOTHING
    waits: Histogram = _NOTHING
    runs: Histogram = _NOTHING
    waiting_now: int = 0

    def since(self, earlier: Batches) -> Batches:
        """Return the counts since an earlier snapshot."""
        return Batches(
            _counts_since(self.reasons, earlier.reasons),
            self.sizes.since(earlier.sizes),
            self.waits.since(earlier.waits),
            self.runs.since(earlier.runs),
            self.waiting_now,
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one continuously batched class in the replicas of a deployment.

    Attributes:
        counts: ``admissions`` and ``preemptions``.
        held: What there is now: requests that are ``running``, ``parked`` and ``waiting``, their
            ``waiting_cost``, and of the ``budget`` what is ``used``; no ``budget``: no bound.
        runs: How long steps took.
        sizes: How many requests shared one; the bounds are numbers of requests.
        first_values: From the arrival of requests to their first value.
        next_values: From one value of a request to its next.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    runs: Histogram = _NOTHING
    sizes: Histogram = _NOTHING
    first_values: Histogram = _NOTHING
    next_values: Histogram = _NOTHING

    def since(self, earlier: Steps) -> Steps:
        """Return the counts since an earlier snapshot."""
        return Steps(
            _counts_since(self.counts, earlier.counts),
            self.held,
            self.runs.since(earlier.runs),
            self.sizes.since(earlier.sizes),
            self.first_values.since(earlier.first_values),
            self.next_values.since(earlier.next_values),
        )


@dataclass(frozen=True, slots=True)
class Cache:
    """One replica's use of the models of one function, since it started.

    Attributes:
        counts: ``hit``, ``miss``, ``evictions``, ``reloads``, how loads ended (``loaded``,
            ``failed``, ``cancelled``, ``dropped``), and what there is now: ``models``, ``max``,
            ``bytes``, ``loading``, ``waiting``.
        load_times: Of loads that succeeded.
        models: Of those that are loaded, by id: ``bytes``, ``hits``, ``misses``, ``loads``,
            ``evictions``, ``load_s`` of the last load, ``held``: it is in use or pinned.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    load_times: Histogram = _NOTHING
    models: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeshSnapshot:
    """The state of a mesh at one moment.

    Attributes:
        at_s: Of a clock that never goes back.
        unix_s: The same as Unix time.
        status: The controller's status reply.
        edges: What routers have done, by caller and called deployment. Names are
            "application/Deployment"; calls from outside come from ``INGRESS`` and "driver".
        ends: Calls of each replica by the words of codes, by its id, from all callers.
        methods: How long calls took in each replica of this node, by its id and by method.
        batches: What the batched functions of a deployment did, by "application/Deployment" and
            function.
        steps: The same of continuously batched classes.
        kept: Cache entries that the replicas of a deployment report, by "application/Deployment".
        models: Those that a replica has, by its id, as far as routers know.
        caches: What replicas did with models, by "application/Deployment", replica and function.
        missing: Processes that did not answer, in words.
    """

    at_s: float
    unix_s: float
    status: control_pb2.StatusReply
    edges: Mapping[tuple[str, str], Routed] = field(default_factory=dict)
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    batches: Mapping[tuple[str, str], Batches] = field(default_factory=dict)
    steps: Mapping[tuple[str, str], Steps] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    caches: Mapping[tuple[str, str, str], Cache] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def nodes(self) -> dict[str, str]:
        """Return the node of each replica, by its id."""
        return {
            replica.replica_id: replica.node
            for application in self.status.applications
            for deployment in application.deployments
            for replica in deployment.replicas
        }

    def edges_since(self, earlier: MeshSnapshot | None) -> dict[tuple[str, str], Routed]:
        """Return the counts of routers since an earlier snapshot; ``None``: since their start."""
        if earlier is None:
            return dict(self.edges)
        nothing = Routed()
        return {
            key: each.since(earlier.edges.get(key, nothing)) for key, each in self.edges.items()
        }

    def ends_since(self, earlier: MeshSnapshot | None) -> dict[str, dict[str, int]]:
        """Return how calls of each replica ended since an earlier snapshot; as above."""
        before = {} if earlier is None else earlier.ends
        return {name: _counts_since(each, before.get(name, {})) for name, each in self.ends.items()}

    def methods_since(self, earlier: MeshSnapshot | None) -> dict[str, dict[str, Histogram]]:
        """Return how long calls took in replicas since an earlier snapshot; as above."""
        before = {} if earlier is None else earlier.methods
        return {
            name: {
                method: times.since(before.get(name, {}).get(method, _NOTHING))
                for method, times in each.items()
            }
            for name, each in self.methods.items()
        }

    def batches_since(self, earlier: MeshSnapshot | None) -> dict[tuple[str, str], Batches]:
        """Return the batches released since an earlier snapshot; as above."""
        if earlier is None:
            return dict(self.batches)
        nothing = Batches()
        return {
            key: each.since(earlier.batches.get(key, nothing)) for key, each in self.batches.items()
        }

    def steps_since(self, earlier: MeshSnapshot | None) -> dict[tuple[str, str], Steps]:
        """Return the steps made since an earlier snapshot; as above."""
        if earlier is None:
            return dict(self.steps)
        nothing = Steps()
        return {
            key: each.since(earlier.steps.get(key, nothing)) for key, each in self.steps.items()
        }


def ended(codes: Mapping[str, int]) -> int:
    """Count calls that were answered, well or not."""
    return sum(count for code, count in codes.items() if code != LEFT)


def errors(codes: Mapping[str, int]) -> int:
    """Count those of them whose answers blame the service or the mesh."""
    return sum(count for code, count in codes.items() if code in ERRORS)


def by_target(edges: Mapping[tuple[str, str], Routed]) -> dict[str, Routed]:
    """Return the counts of all callers together, by called deployment."""
    found: dict[str, Routed] = {}
    for (_, target), each in edges.items():
        found[target] = found[target].plus(each) if target in found else each
    return found


def _since(now: int, then: int) -> int:
    return now - then if now >= then else now


def _counts_since(now: Mapping[str, int], then: Mapping[str, int]) -> dict[str, int]:
    return {name: _since(count, then.get(name, 0)) for name, count in now.items()}


def _together(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    names: Iterable[str] = dict.fromkeys((*one, *other))
    return {name: one.get(name, 0) + other.get(name, 0) for name in names}
