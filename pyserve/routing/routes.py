"""Turns views of the mesh into what the native routing table takes."""

from __future__ import annotations

import functools
import logging

from google.protobuf import descriptor_pb2

from pyserve.bridge import rust
from pyserve.config import DEFAULT_POLICY, RouterDefaults
from pyserve.config.routing import OPTIONS, POLICIES
from pyserve.routing.policies import Policies
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)


def route_of(
    view: mesh_pb2.DeploymentView, defaults: RouterDefaults, policies: Policies
) -> rust.DeploymentRoute:
    """Return the route of one deployment.

    Args:
        view: what the controller says.
        defaults: what holds in this process where the deployment does not say it.
        policies: those that users have written.
    """
    _tell_of_unknown(view.router.policy)
    return rust.DeploymentRoute(
        view.SerializeToString(),
        methods=_methods(tuple(view.file_descriptors)),
        options=_options(view.router, defaults),
        ranker=policies.ranker_of(view.router.policy_class, view.replicas),
    )


def route_of_questions(view: mesh_pb2.DeploymentView) -> rust.DeploymentRoute:
    """Return a route of one deployment for calls that are addressed to its replicas by name."""
    addressed = mesh_pb2.DeploymentView(
        key=view.key,
        replicas=view.replicas,
        max_queued_requests=view.max_queued_requests,
        max_request_bytes=view.max_request_bytes,
    )
    return rust.DeploymentRoute(addressed.SerializeToString())


def _options(said: mesh_pb2.RouterSettings, defaults: RouterDefaults) -> RouterDefaults:
    """Return the options of a deployment's routers, completed by those of this process."""
    known = said.DESCRIPTOR.fields_by_name
    found = dict(defaults)
    for name, option in OPTIONS.items():
        field = known.get(option.wire or name)
        if not option.is_of_router:
            continue
        if field is None:
            found |= {name: said.options[name]} if name in said.options else {}
        elif not field.has_presence or said.HasField(field.name):
            found[name] = getattr(said, field.name)
    # An option of the deployment, beside max_queued_requests.
    if "max_queued_cost" in said.options:
        found["max_queued_cost"] = said.options["max_queued_cost"]
    found["max_backoff_s"] = max(found["initial_backoff_s"], found["max_backoff_s"])
    return found


@functools.lru_cache(maxsize=64)  # So that each unknown name is logged once.
def _tell_of_unknown(policy: str) -> None:
    """Log a policy that this router does not know, and routes by the default instead."""
    if policy and policy not in POLICIES:
        _LOGGER.warning(
            "this router does not know the policy %r, which a newer controller asks for; "
            "it routes by %r until it is replaced",
            policy,
            DEFAULT_POLICY,
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
