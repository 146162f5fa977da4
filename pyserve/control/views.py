"""What routers are told about the mesh, computed from its state. Pure."""

from __future__ import annotations

from pyserve.config import BackpressureConfig, DeploymentOptions
from pyserve.control.applications import HttpRoutes
from pyserve.control.routing import router_settings
from pyserve.control.state import Desired, MeshState, Replica
from pyserve.control.traffic import Infos, shares_of
from pyserve.types import DeploymentKey
from pyserve.wire.v1 import mesh_pb2


def views_of(
    state: MeshState, routes: HttpRoutes, infos: Infos
) -> dict[DeploymentKey, mesh_pb2.DeploymentView]:
    """Return a view of every deployment that serves, or is going to.

    A deployment without a replica that serves has a view too, so that requests wait for the next
    replica instead of failing as unknown; before the first one its services are not known.
    """
    views = {}
    replicas = state.by_deployment()
    for key, desired in state.deployments.items():
        serving = [replica for replica in replicas[key] if replica.in_rotation]
        if serving or _is_expected(desired):
            views[key] = _view(desired, serving, routes.of_deployment.get(key, ()))
    known = frozenset(key for key, view in views.items() if view.services)
    for key, view in views.items():
        options = _options(state.deployments[key], replicas[key])
        view.traffic.extend(shares_of(key, options.traffic, infos, known))
        view.mirror.extend(shares_of(key, options.mirror, infos, known))
    return views


def _is_expected(desired: Desired) -> bool:
    """Say whether there shall be a replica, and may be one."""
    target = desired.target
    return target is not None and (bool(desired.services) or not target.failed)


def _options(desired: Desired, replicas: list[Replica]) -> DeploymentOptions:
    version = desired.target or desired.fallback
    return version.options if version is not None else replicas[0].options


def _view(
    desired: Desired, serving: list[Replica], http_prefixes: tuple[str, ...]
) -> mesh_pb2.DeploymentView:
    options = _options(desired, serving)
    version = desired.target or desired.fallback
    is_told = bool(options.request_router_config.policy_path)
    return mesh_pb2.DeploymentView(
        key=mesh_pb2.DeploymentKey(
            application=desired.key.application, name=desired.key.deployment
        ),
        services=desired.services,
        replicas=[_replica_view(replica, is_told=is_told) for replica in serving],
        max_queued_requests=options.queued_requests_limit,
        request_timeout_s=options.request_timeout_s or 0.0,
        max_request_bytes=options.max_receive_message_bytes,
        file_descriptors=desired.file_descriptors,
        serializer=options.serializer,
        http_prefixes=http_prefixes,
        queue_full_status=options.queue_full_status,
        retry_after_s=(options.backpressure_config or BackpressureConfig()).retry_after_s or 0.0,
        router=router_settings(
            options.request_router_config, () if version is None else version.sys_path
        ),
        idempotent_methods=desired.idempotent_methods,
        is_scaled_to_zero=options.is_scaled_to_zero,
        scales_with_load=options.scaling is not None,
        class_prefixes=[each for each in desired.http_prefixes if each in http_prefixes],
    )


def _replica_view(replica: Replica, *, is_told: bool) -> mesh_pb2.ReplicaView:
    """Return the view of one replica.

    Args:
        replica: which one.
        is_told: whether routers get what the replica says of itself; those without a policy of
            the user's have no use for it, and would get a new view for each change.
    """
    place = replica.place
    return mesh_pb2.ReplicaView(
        replica_id=replica.id,
        node=place.node,
        zone=place.zone,
        endpoints=mesh_pb2.Endpoints(
            address=place.address,
            unix_path=place.unix_path,
            direct_http=place.direct_http,
            direct_grpc=place.direct_grpc,
        ),
        max_ongoing_requests=replica.options.ongoing_requests_limit(),
        routing_stats_json=replica.routing_stats_json if is_told else "",
        replica_metadata_json=replica.metadata_json if is_told else "",
    )
