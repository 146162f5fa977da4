"""The views of the mesh for routers, computed from its state. Pure.

A deployment's view is its head, which describes the deployment, and a view of each replica that
gets calls. ``News`` finds what may have changed since it was last asked, without looking at
unchanged replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyserve.config import (
    DEFAULT_POLICY,
    BackpressureConfig,
    DeploymentOptions,
    RequestRouterConfig,
)
from pyserve.config.routing import OPTIONS, STATUS_CODES, policy_kwargs_json
from pyserve.control.registry import Changes, Item
from pyserve.control.state.applications import HttpRoutes
from pyserve.control.state.engines import engine_models
from pyserve.control.state.mesh import Desired, MeshState, Replica
from pyserve.control.state.replica import take
from pyserve.control.state.traffic import Infos, shares_of
from pyserve.types import DeploymentKey, ReplicaId
from pyserve.wire.v1 import mesh_pb2

# All that the head of a view is made of.
_Ingredients = tuple[object, ...]


class News:
    """Finds what has changed for routers since the last look.

    A deployment that serves, or is going to, has a view. One without a replica that serves has one
    too, so that requests wait for the next replica instead of failing as unknown; before the first
    one its services are not known.

    Args:
        state: of the mesh.
    """

    def __init__(self, state: MeshState) -> None:
        self._state = state
        self._changed = state.replicas.follow()
        self._heads: dict[DeploymentKey, _Ingredients] = {}
        # Of every deployment those in rotation, whether it has a view or not.
        self._told: dict[DeploymentKey, set[ReplicaId]] = {}
        self._where: dict[ReplicaId, DeploymentKey] = {}

    def since_last(self, routes: HttpRoutes, infos: Infos) -> Changes:
        """Return the changes for routers; parts that did not change may be among them.

        Args:
            routes: of plain HTTP, as they are now.
            infos: the applications.
        """
        moved: dict[DeploymentKey, set[ReplicaId]] = {}
        for replica_id in take(self._changed):
            self._place(replica_id, moved)
        shown = {
            key: desired
            for key, desired in self._state.deployments.items()
            if self._told.get(key) or _is_expected(desired)
        }
        changes: dict[Item, mesh_pb2.DeploymentView | mesh_pb2.ReplicaView | None] = {}
        for key in [key for key in self._heads if key not in shown]:
            del self._heads[key]
            changes[key, None] = None
            gone = {*moved.get(key, ()), *self._told.get(key, ())}
            changes |= dict.fromkeys(((key, each) for each in gone), None)
        known = frozenset(key for key, desired in shown.items() if desired.services)
        for key, desired in shown.items():
            changes |= self._of(key, desired, moved.get(key, ()), (routes, infos, known))
        return changes

    def _place(self, replica_id: ReplicaId, moved: dict[DeploymentKey, set[ReplicaId]]) -> None:
        """Move a replica to the deployment it serves now, and mark it as moved there and before."""
        replica = self._state.replicas.get(replica_id)
        former = self._where.pop(replica_id, None)
        if former is not None:
            self._told[former].discard(replica_id)
            moved.setdefault(former, set()).add(replica_id)
        if replica is not None and replica.in_rotation:
            self._where[replica_id] = replica.key
            self._told.setdefault(replica.key, set()).add(replica_id)
            moved.setdefault(replica.key, set()).add(replica_id)

    def _of(
        self,
        key: DeploymentKey,
        desired: Desired,
        moved: Iterable[ReplicaId],
        others: tuple[HttpRoutes, Infos, frozenset[DeploymentKey]],
    ) -> Changes:
        """Return the changes of a deployment that has a view."""
        routes, infos, known = others
        options = _options(desired, self._state.replicas.of(key).values())
        shares = tuple(
            tuple(shares_of(key, each, infos, known)) for each in (options.traffic, options.mirror)
        )
        prefixes = routes.of_deployment.get(key, ())
        llm_prefix = routes.of_engines.get(key.application, "") if desired.engine_models else ""
        ingredients = (options, *_facts(desired), prefixes, llm_prefix, *shares)
        changes: dict[Item, mesh_pb2.DeploymentView | mesh_pb2.ReplicaView | None] = {}
        if self._heads.get(key) != ingredients:
            self._heads[key] = ingredients
            head = _head(desired, options, prefixes)
            head.llm_prefix = llm_prefix
            head.traffic.extend(shares[0])
            head.mirror.extend(shares[1])
            changes[key, None] = head
            # The views of replicas depend on the head.
            moved = {*self._told.get(key, ()), *moved}
        is_told = bool(options.request_router_config.policy_path)
        mine = self._told.get(key, ())
        for replica_id in sorted(moved):
            changes[key, replica_id] = (
                _replica_view(self._state.replicas[replica_id], is_told=is_told)
                if replica_id in mine
                else None
            )
        return changes


def _facts(desired: Desired) -> Iterator[object]:
    """Yield the other parts of a deployment's head."""
    version = desired.target or desired.fallback
    yield () if version is None else version.sys_path
    yield desired.services
    yield desired.file_descriptors
    yield desired.idempotent_methods
    yield desired.http_prefixes
    yield desired.engine_models


def _is_expected(desired: Desired) -> bool:
    """Say whether the deployment should have replicas, and can have them."""
    target = desired.target
    return target is not None and (bool(desired.services) or not target.failed)


def _options(desired: Desired, replicas: Iterable[Replica]) -> DeploymentOptions:
    version = desired.target or desired.fallback
    return version.options if version is not None else next(iter(replicas)).options


def _head(
    desired: Desired, options: DeploymentOptions, http_prefixes: tuple[str, ...]
) -> mesh_pb2.DeploymentView:
    version = desired.target or desired.fallback
    router = router_settings(
        options.request_router_config, () if version is None else version.sys_path
    )
    if options.max_queued_cost is not None:
        router.options["max_queued_cost"] = options.max_queued_cost
    return mesh_pb2.DeploymentView(
        key=mesh_pb2.DeploymentKey(
            application=desired.key.application, name=desired.key.deployment
        ),
        services=desired.services,
        max_queued_requests=options.queued_requests_limit,
        request_timeout_s=options.request_timeout_s or 0.0,
        max_request_bytes=options.max_receive_message_bytes,
        file_descriptors=desired.file_descriptors,
        serializer=options.serializer,
        http_prefixes=http_prefixes,
        queue_full_status=options.queue_full_status,
        retry_after_s=(options.backpressure_config or BackpressureConfig()).retry_after_s or 0.0,
        router=router,
        idempotent_methods=desired.idempotent_methods,
        is_scaled_to_zero=options.is_scaled_to_zero,
        scales_with_load=options.scaling is not None,
        class_prefixes=[each for each in desired.http_prefixes if each in http_prefixes],
        engine_models=engine_models(desired),
    )


def view_of_one(
    desired: Desired, replica: mesh_pb2.ReplicaView, *, is_ingress: bool
) -> mesh_pb2.DeploymentView:
    """Return the view of a deployment that has one replica, and alone has routes of HTTP.

    Args:
        desired: the deployment.
        replica: its replica.
        is_ingress: it answers for its application.
    """
    target = desired.target
    assert target is not None, "it has a replica"
    route = ("/",) if is_ingress and desired.http else ()
    view = _head(desired, target.options, (*route, *desired.http_prefixes))
    view.llm_prefix = "/" if desired.engine_models else ""
    view.scales_with_load = False  # There is nobody to hear of it.
    view.replicas.append(replica)
    return view


def _replica_view(replica: Replica, *, is_told: bool) -> mesh_pb2.ReplicaView:
    """Return the view of one replica.

    Args:
        replica: which one.
        is_told: whether routers get the replica's own facts; those without a policy of the user's
            do not need them, and would get a new view for each change.
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
            proves_itself=place.proves_itself,
        ),
        max_ongoing_requests=replica.options.ongoing_requests_limit(),
        routing_stats_json=replica.routing_stats_json if is_told else "",
        replica_metadata_json=replica.metadata_json if is_told else "",
    )


# The routing settings of one deployment for routers.


def router_settings(
    config: RequestRouterConfig, sys_path: tuple[str, ...]
) -> mesh_pb2.RouterSettings:
    """Return the settings as they travel; what the deployment leaves out stays unset.

    Args:
        config: the deployment's.
        sys_path: where the driver finds modules; for a policy that is a class of the user's.
    """
    # A router of a neighbouring release may not know our default, and takes its own.
    is_unset = config.policy_path or config.policy == DEFAULT_POLICY
    settings = mesh_pb2.RouterSettings(
        policy="" if is_unset else config.policy,
        retry_codes=[STATUS_CODES.index(name) + 1 for name in config.retryable_status_codes],
    )
    for name, option in OPTIONS.items():
        value = getattr(config, name)
        if not option.is_of_router or value is None:
            continue
        if (field := option.wire or name) in settings.DESCRIPTOR.fields_by_name:
            setattr(settings, field, value)
        else:
            settings.options[name] = value
    if config.policy_path:
        settings.policy_class.CopyFrom(
            mesh_pb2.PolicyClass(
                import_path=config.policy_path,
                kwargs_json=policy_kwargs_json(config),
                sys_path=sys_path,
            )
        )
    return settings
