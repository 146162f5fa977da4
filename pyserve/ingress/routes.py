"""Turns views of the mesh into what the native routing table takes."""

from __future__ import annotations

import functools
from http import HTTPStatus

from google.protobuf import descriptor_pb2

from pyserve import _router
from pyserve.wire.v1 import mesh_pb2


def route_of(view: mesh_pb2.DeploymentView) -> _router.DeploymentRoute:
    """Return the route of one deployment."""
    methods = _methods(tuple(view.file_descriptors))
    return _router.DeploymentRoute(
        application=view.key.application,
        deployment=view.key.name,
        services={name: methods.get(name) for name in view.services},
        replicas=[_replica_route(replica) for replica in view.replicas],
        max_queued_requests=view.max_queued_requests,
        request_timeout_s=view.request_timeout_s or None,
        max_request_bytes=view.max_request_bytes,
        http_prefixes=view.http_prefixes,
        queue_full_status=view.queue_full_status or HTTPStatus.SERVICE_UNAVAILABLE,
        file_descriptors=view.file_descriptors,
    )


# Views change far more often than the files of their services.
@functools.lru_cache(maxsize=256)
def _methods(file_descriptors: tuple[bytes, ...]) -> dict[str, list[str]]:
    """Return the names of each service's methods, by the service's full name."""
    files = map(descriptor_pb2.FileDescriptorProto.FromString, file_descriptors)
    return {
        f"{file.package}.{service.name}".lstrip("."): [method.name for method in service.method]
        for file in files
        for service in file.service
    }


def _replica_route(replica: mesh_pb2.ReplicaView) -> _router.ReplicaRoute:
    return _router.ReplicaRoute(
        replica_id=replica.replica_id,
        node=replica.node,
        zone=replica.zone,
        address=replica.endpoints.address,
        unix_path=replica.endpoints.unix_path,
        max_ongoing_requests=replica.max_ongoing_requests,
    )
