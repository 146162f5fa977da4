"""Routes of native tables, by the message that a controller sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyserve import _router
from pyserve.wire.v1 import mesh_pb2


def replica_view(
    replica_id: str,
    address: str | int,
    capacity: int = 10,
    *,
    node: str = "elsewhere",
    zone: str = "",
    proves_itself: bool = False,
) -> mesh_pb2.ReplicaView:
    """Return a replica at ``host:port``, or at a port of this machine."""
    at = f"127.0.0.1:{address}" if isinstance(address, int) else address
    return mesh_pb2.ReplicaView(
        replica_id=replica_id,
        node=node,
        zone=zone,
        endpoints=mesh_pb2.Endpoints(address=at, proves_itself=proves_itself),
        max_ongoing_requests=capacity,
    )


def native_route(
    replicas: Sequence[mesh_pb2.ReplicaView],
    services: Mapping[str, list[str] | None],
    *,
    target: str = "app/Echo",
    options: Mapping[str, float] | None = None,
    max_queued_requests: int = 100,
    max_request_bytes: int = 1 << 20,
    **fields: Any,
) -> _router.DeploymentRoute:
    """Return the route of a deployment.

    Args:
        replicas: Those that are ready.
        services: The methods of each; ``None``: they are not known.
        target: ``application/Deployment``.
        options: Of its routers.
        max_queued_requests: Calls that may wait.
        max_request_bytes: Of requests that are kept whole.
        **fields: Others of ``DeploymentView``.
    """
    application, _, name = target.partition("/")
    view = mesh_pb2.DeploymentView(
        key=mesh_pb2.DeploymentKey(application=application, name=name),
        services=services,
        replicas=replicas,
        max_queued_requests=max_queued_requests,
        max_request_bytes=max_request_bytes,
        **fields,
    )
    methods = {service: known for service, known in services.items() if known is not None}
    return _router.DeploymentRoute(
        view.SerializeToString(), methods=methods, options=dict(options or {})
    )
