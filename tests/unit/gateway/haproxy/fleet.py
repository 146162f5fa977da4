"""Views of a mesh, as the registry sends them."""

from __future__ import annotations

from collections.abc import Sequence

from pyserve.wire.v1 import mesh_pb2


def replica(number: int, name: str = "Echo", *, direct: bool = True) -> mesh_pb2.ReplicaView:
    """Return a replica that takes three calls at once."""
    ends = mesh_pb2.Endpoints(address=f"127.0.0.1:{5000 + number}")
    if direct:
        ends.direct_http = f"127.0.0.1:{30000 + number}"
        ends.direct_grpc = f"127.0.0.1:{40000 + number}"
    return mesh_pb2.ReplicaView(
        replica_id=f"{name}#{number}", endpoints=ends, max_ongoing_requests=3
    )


def view(
    name: str = "Echo",
    *,
    application: str = "shop",
    services: Sequence[str] = (),
    prefixes: Sequence[str] = (),
    class_prefixes: Sequence[str] = (),
    replicas: Sequence[mesh_pb2.ReplicaView] = (),
    shares: Sequence[mesh_pb2.Share] = (),
    files: Sequence[bytes] = (),
) -> mesh_pb2.DeploymentView:
    """Return a deployment whose queue takes seven."""
    return mesh_pb2.DeploymentView(
        key=mesh_pb2.DeploymentKey(application=application, name=name),
        services=services,
        http_prefixes=[*prefixes, *class_prefixes],
        class_prefixes=class_prefixes,
        replicas=replicas,
        traffic=shares,
        file_descriptors=files,
        max_queued_requests=7,
        queue_full_status=429,
    )
