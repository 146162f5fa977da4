"""Turns views of the mesh into what the native routing table takes."""

from __future__ import annotations

from pyserve import _router
from pyserve.wire.v1 import mesh_pb2


def route_of(view: mesh_pb2.DeploymentView) -> _router.DeploymentRoute:
    """Return the route of one deployment."""
    return _router.DeploymentRoute(
        application=view.key.application,
        deployment=view.key.name,
        services=list(view.services),
        replicas=[_replica_route(replica) for replica in view.replicas],
        max_queued_requests=view.max_queued_requests,
        request_timeout_s=view.request_timeout_s or None,
        max_request_bytes=view.max_request_bytes,
    )


def _replica_route(replica: mesh_pb2.ReplicaView) -> _router.ReplicaRoute:
    return _router.ReplicaRoute(
        replica_id=replica.replica_id,
        node=replica.node,
        zone=replica.zone,
        address=replica.endpoints.address,
        unix_path=replica.endpoints.unix_path,
        max_ongoing_requests=replica.max_ongoing_requests,
    )
