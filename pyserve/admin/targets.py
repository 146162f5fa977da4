"""All admin servers of a mesh, in the format of Prometheus's HTTP discovery. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyserve.config import is_loopback
from pyserve.wire.v1 import control_pb2


def targets_of(reply: control_pb2.StatusReply, *, speaks_tls: bool) -> list[dict[str, Any]]:
    """Return a target for each admin server that the controller knows of.

    Args:
        reply: The state of the mesh.
        speaks_tls: Whether those that are not on loopback speak TLS.
    """
    found: dict[str, dict[str, Any]] = {}
    for address, node, role in _servers(reply):
        labels = {"pyserve_node": node, "pyserve_role": role}
        if speaks_tls and not is_loopback(address.rpartition(":")[0]):
            labels["__scheme__"] = "https"
        found.setdefault(address, {"targets": [address], "labels": labels})
    return [found[address] for address in sorted(found)]


def _servers(reply: control_pb2.StatusReply) -> Iterator[tuple[str, str, str]]:
    for ingress in reply.ingresses:
        # Without addresses it has gone.
        if ingress.admin and ingress.addresses:
            yield ingress.admin, ingress.node, "ingress"
    if reply.admin:
        yield reply.admin, "", "controller"
    for application in reply.applications:
        for deployment in application.deployments:
            for replica in deployment.replicas:
                if replica.admin:
                    yield replica.admin, replica.node, "replica"
