"""Turns views of the mesh into what the native routing table takes."""

from __future__ import annotations

import functools
import logging
from http import HTTPStatus
from typing import TypeVar

from google.protobuf import descriptor_pb2

from pyserve.bridge import rust
from pyserve.config import DEFAULT_LOAD_BOUND, DEFAULT_POLICY, RouterDefaults
from pyserve.config.routing import POLICIES
from pyserve.routing.policies import Policies
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
Value = TypeVar("Value", bool, int, float)


def route_of(
    view: mesh_pb2.DeploymentView, defaults: RouterDefaults, policies: Policies
) -> rust.DeploymentRoute:
    """Return the route of one deployment.

    Args:
        view: what the controller says.
        defaults: what holds in this process where the deployment does not say it.
        policies: those that users have written.
    """
    methods = _methods(tuple(view.file_descriptors))
    return rust.DeploymentRoute(
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
        model_matching_timeout_s=defaults.model_matching_timeout_s,
        router=_settings(view.router, defaults),
        retry_after_s=view.retry_after_s or None,
        idempotent_methods=view.idempotent_methods,
        traffic=[(_target(share.key), share.weight) for share in view.traffic],
        mirror=[(_target(share.key), share.weight) for share in view.mirror],
        is_scaled_to_zero=view.is_scaled_to_zero,
        ranker=policies.ranker_of(view.router.policy_class, view.replicas),
    )


def route_of_questions(view: mesh_pb2.DeploymentView) -> rust.DeploymentRoute:
    """Return a route of one deployment for calls that are addressed to its replicas by name."""
    return rust.DeploymentRoute(
        application=view.key.application,
        deployment=view.key.name,
        services={},
        replicas=[_replica_route(replica) for replica in view.replicas],
        max_queued_requests=view.max_queued_requests,
        request_timeout_s=None,
        max_request_bytes=view.max_request_bytes,
    )


def _target(key: mesh_pb2.DeploymentKey) -> str:
    return f"{key.application}/{key.name}"


def _settings(said: mesh_pb2.RouterSettings, defaults: RouterDefaults) -> rust.RouterSettings:
    def choose(name: str, default: Value) -> Value:
        value: Value = getattr(said, name) if said.HasField(name) else default
        return value

    initial_s = choose("initial_backoff_s", defaults.initial_backoff_s)
    return rust.RouterSettings(
        policy=_known_policy(said.policy),
        load_bound=choose("load_bound", DEFAULT_LOAD_BOUND),
        prefer_node=choose("prefer_node", defaults.prefer_local_node),
        prefer_zone=choose("prefer_zone", defaults.prefer_local_zone),
        initial_backoff_s=initial_s,
        backoff_multiplier=choose("backoff_multiplier", defaults.backoff_multiplier),
        max_backoff_s=max(initial_s, choose("max_backoff_s", defaults.max_backoff_s)),
        slow_start_s=said.slow_start_s,
        retry_attempts_max=choose("retry_attempts_max", defaults.max_attempts),
        retry_budget_percent=said.retry_budget_percent,
        hedging=said.hedging,
        ejection_fall=choose("ejection_fall", defaults.ejection_fall),
        ejection_rise=choose("ejection_rise", defaults.ejection_rise),
        ejection_interval_s=choose("ejection_interval_s", defaults.ejection_interval_s),
        retry_codes=said.retry_codes or None,
    )


@functools.lru_cache(maxsize=64)  # So that each unknown name is logged once.
def _known_policy(name: str) -> str:
    """Return the policy to route by: the default if the name is empty or not known here."""
    if name in POLICIES:
        return name
    if name:
        _LOGGER.warning(
            "this router does not know the policy %r, which a newer controller asks for; "
            "it routes by %r until it is replaced",
            name,
            DEFAULT_POLICY,
        )
    return DEFAULT_POLICY


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


def _replica_route(replica: mesh_pb2.ReplicaView) -> rust.ReplicaRoute:
    return rust.ReplicaRoute(
        replica_id=replica.replica_id,
        node=replica.node,
        zone=replica.zone,
        address=replica.endpoints.address,
        unix_path=replica.endpoints.unix_path,
        max_ongoing_requests=replica.max_ongoing_requests,
        proves_itself=replica.endpoints.proves_itself,
    )
