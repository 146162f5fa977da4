"""Looks at a mesh from outside: calls in flight, descriptors and memory of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc.aio

from benchmarks.cpu import read_table
from pyserve.aio.mesh_channel import proof
from pyserve.driver.status import MeshStatus
from services.echo import echo_pb2, echo_pb2_grpc

_ANSWER_TIMEOUT_S = 10.0
# Connections of routers to replicas open and close with the load: one to four for each pair, at
# both ends. What leaks with calls or kills passes this soon.
_DESCRIPTORS_PER_REPLICA = 4
_DESCRIPTORS_SPARE = 4


@dataclass(frozen=True)
class ProcessFacts:
    """One process.

    Attributes:
        descriptors: Open ones.
        rss_bytes: Resident memory.
    """

    descriptors: int
    rss_bytes: int


@dataclass(frozen=True)
class Inspection:
    """A mesh at one moment.

    Attributes:
        ingress: The process of controller and ingress.
        replicas: By replica id.
        handlers_running: Calls that run in handlers, by replica id, as the service counts them.
        ingress_in_flight: Calls that the ingress has not ended.
        parked: Calls that wait for a replica in the ingress.
        router_in_flight: Calls that the ingress's router counts at each replica.
    """

    ingress: ProcessFacts
    replicas: Mapping[str, ProcessFacts]
    handlers_running: Mapping[str, int]
    ingress_in_flight: int
    parked: int
    router_in_flight: Mapping[str, int]

    def in_flight(self) -> dict[str, int]:
        """Return every counter of calls that is not zero, by name."""
        counters = {
            "ingress": self.ingress_in_flight,
            "parked": self.parked,
            **{f"router, {name}": count for name, count in self.router_in_flight.items()},
            **{f"handlers, {name}": count for name, count in self.handlers_running.items()},
        }
        return {name: count for name, count in counters.items() if count}

    def as_json(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


async def inspect(status: MeshStatus, token: bytes) -> Inspection:
    """Look at the mesh that ``status`` describes; replicas are asked directly, by its token."""
    table = read_table()
    replicas = [
        replica
        for replica in status.applications["default"].deployments["Echo"].replicas
        if replica.state == "RUNNING" and replica.pid in table
    ]

    def facts(pid: int) -> ProcessFacts:
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        return ProcessFacts(descriptors, table[pid].rss_bytes)

    return Inspection(
        ingress=facts(status.ingresses[0].pid),
        replicas={replica.replica_id: facts(replica.pid) for replica in replicas},
        handlers_running={
            replica.replica_id: await _handlers_running(replica.address, token)
            for replica in replicas
        },
        ingress_in_flight=status.ingress.in_flight,
        parked=status.ingress.parked,
        router_in_flight=status.ingress.in_flight_of_replica,
    )


def problems_between(before: Inspection, after: Inspection) -> list[str]:
    """Return what a soak must not leave behind, in words."""
    found = [
        f"in flight after the last call: {name} {count}"
        for name, count in after.in_flight().items()
    ]
    allowed = _DESCRIPTORS_PER_REPLICA * len(after.replicas) + _DESCRIPTORS_SPARE
    grown = after.ingress.descriptors - before.ingress.descriptors
    if grown > allowed:
        found.append(f"the ingress holds {grown} descriptors more than before")
    most_before = max(facts.descriptors for facts in before.replicas.values())
    for name, facts in after.replicas.items():
        if facts.descriptors > most_before + allowed:
            more = facts.descriptors - most_before
            found.append(f"replica {name} holds {more} descriptors more than replicas before")
    return found


async def _handlers_running(address: str, token: bytes) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        count = await stub.Count(
            echo_pb2.CountRequest(), timeout=_ANSWER_TIMEOUT_S, metadata=proof(token)
        )
    return int(count.started - count.succeeded - count.failed - count.cancelled)
