"""What an ingress says of itself, from what its native half has counted. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pyserve.config.ingress import IngressSettings
from pyserve.wire.v1 import control_pb2, mesh_pb2

# The table's statistics that are not counters.
_NOT_COUNTED = frozenset(
    {"in_flight", "in_flight_total", "parked", "waiting_for_model", "cache_keys", "cache_bytes"}
)


def ingress_status(
    table: Mapping[str, Mapping[str, object]], **of_process: Any
) -> control_pb2.IngressStatus:
    """Return the status of an ingress.

    Args:
        table: ``rust.RoutingTable.stats``, by "application/Deployment".
        of_process: the fields of the message that have nothing to do with deployments.
    """
    found = control_pb2.IngressStatus(**of_process)
    for target, stats in sorted(table.items()):
        application, _, deployment = target.partition("/")
        of_replica = stats["in_flight"]
        assert isinstance(of_replica, dict)
        found.in_flight_of_replica.update(of_replica)
        routed = control_pb2.RoutedDeployment(
            key=mesh_pb2.DeploymentKey(application=application, name=deployment),
            in_flight=_count(stats["in_flight_total"]),
            parked=_count(stats["parked"]),
            counts={
                name: value
                for name, value in stats.items()
                if isinstance(value, int) and name not in _NOT_COUNTED
            },
        )
        found.parked += routed.parked
        found.deployments.append(routed)
    return found


def limits_of(settings: IngressSettings) -> dict[str, float]:
    """Return the sizes, times and numbers that bound an ingress, by their names."""
    return {
        each.name: float(value)
        for each in dataclasses.fields(settings)
        if isinstance(value := getattr(settings, each.name), int | float)
        and not isinstance(value, bool)
        and each.name != "port"
    }


def _count(value: object) -> int:
    assert isinstance(value, int)
    return value
