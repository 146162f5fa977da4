"""Looks at a mesh that never ran, as few words as a test needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyserve.admin.api.snapshot import INGRESS, MeshSnapshot, Routed
from pyserve.admin.histograms import Histogram
from pyserve.observe.metrics.families import Tally
from pyserve.wire.v1 import control_pb2, mesh_pb2

BOUNDS = (0.001, 0.01, 0.1, 1.0)


def times(*each_s: float) -> Histogram:
    """Return a histogram of these times."""
    counts = [0] * (len(BOUNDS) + 1)
    for time_s in each_s:
        counts[sum(bound < time_s for bound in BOUNDS)] += 1
    return Histogram.of(BOUNDS, counts, sum(each_s))


@dataclass(frozen=True)
class Attempts:
    """The counts of a replica."""

    ended: Histogram
    failed: int

    def plus(self, other: Attempts) -> Attempts:
        return Attempts(self.ended.plus(other.ended), self.failed + other.failed)


def attempts(count: int, each_s: float, failed: int = 0) -> Attempts:
    """Return what a replica did that took the same time for each of its calls."""
    tally = Tally()
    for _ in range(count):
        tally.add(each_s)
    return Attempts(Histogram.of(tally.bounds, tally.counts, tally.sum), failed)


def routed(**replicas: Attempts) -> Routed:
    """Return what a router did, all of it by these replicas, whose names end with ``_N``."""
    of_ids = {name.replace("_", "#"): each for name, each in replicas.items()}
    failed = sum(each.failed for each in of_ids.values())
    ended = Histogram()
    for each in of_ids.values():
        ended = ended.plus(each.ended)
    return Routed(
        counts={"calls": ended.count},
        codes={"OK": ended.count - failed, "INTERNAL": failed},
        answered=ended,
        failed=times(*[0.005] * failed),
        replicas={name: each.ended for name, each in of_ids.items()},
        in_flight=dict.fromkeys(of_ids, 2),
        parked_now=1,
    )


def status(
    *, replicas: Sequence[str] = ("Cart#1", "Cart#2"), state: str = "HEALTHY"
) -> control_pb2.StatusReply:
    """Return what a controller says of a mesh with one deployment."""
    deployment = control_pb2.DeploymentStatus(
        name="Cart",
        state=state,
        reason="all of its replicas serve",
        since=1_000.0,
        wanted=len(replicas),
        replicas=[
            control_pb2.ReplicaStatus(replica_id=each, state="RUNNING", pid=7, node="here")
            for each in replicas
        ],
        scaling=control_pb2.Scaling(
            target=2,
            reason="3 calls wait",
            since=1_001.0,
            min_replicas=1,
            max_replicas=4,
            decisions=[
                control_pb2.ScalingDecision(at=990.0, before=2, after=1, reason="1 call runs"),
                control_pb2.ScalingDecision(at=1_001.0, before=1, after=2, reason="3 calls wait"),
            ],
        ),
    )
    application = control_pb2.ApplicationStatus(
        name="shop", route_prefix="/shop", state="RUNNING", since=999.0, deployments=[deployment]
    )
    ingress = control_pb2.IngressStatus(
        node="here",
        state="HEALTHY",
        pid=5,
        in_flight=3,
        parked=1,
        addresses=["127.0.0.1:8000"],
        counts={"connections": 2},
        in_flight_of_replica={each: number for number, each in enumerate(replicas, 1)},
        deployments=[
            control_pb2.RoutedDeployment(
                key=mesh_pb2.DeploymentKey(application="shop", name="Cart"), in_flight=3, parked=1
            )
        ],
    )
    return control_pb2.StatusReply(
        version="1.2.3",
        controller_pid=4,
        addresses=["127.0.0.1:8000"],
        applications=[application],
        ingress=ingress,
        ingresses=[ingress],
    )


def look(
    at_s: float,
    edges: Mapping[tuple[str, str], Routed] | None = None,
    reply: control_pb2.StatusReply | None = None,
    **failed: int,
) -> MeshSnapshot:
    """Return a look; calls that ``failed`` are by replicas, whose names end with ``_N``."""
    of_ids = {name.replace("_", "#"): count for name, count in failed.items()}
    ends: dict[str, dict[str, int]] = {}
    for routed_ in (edges or {}).values():
        for name, each in routed_.replicas.items():
            bad = of_ids.get(name, 0)
            ends[name] = {"OK": each.count - bad, "INTERNAL": bad}
    return MeshSnapshot(at_s, 2_000.0 + at_s, reply or status(), edges or {}, ends)


CART = (INGRESS, "shop/Cart")
"""The edge by which clients come to the deployment of ``status``."""
