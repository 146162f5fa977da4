"""From views of the mesh to the backends of a balancer outside, and what leads to each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from google.protobuf import descriptor_pb2

from pyserve.gateway.haproxy.words import name
from pyserve.wire.v1 import mesh_pb2

# The tag of google.api.http (72295728) in the serialized options of a method.
_REST = b"\x82\xd3\xe4\x93\x02"


@dataclass(frozen=True, slots=True)
class Target:
    """A replica as a server.

    Attributes:
        name: of the server.
        address: ``host:port`` that calls go to.
        health: ``host:port`` where ``GET /-/healthz`` says whether it takes more.
        calls_max: how many it takes at once; 0: nobody knows.
    """

    name: str
    address: str
    health: str
    calls_max: int


@dataclass(frozen=True, slots=True)
class Backend:
    """The replicas of one deployment, by one protocol.

    Attributes:
        name: of the section.
        title: whose it is, for people.
        targets: at least one.
        services: full names of gRPC services that lead here.
        takes_grpc: gRPC calls of the services do, else all others of them (JSON, Connect).
        prefixes: path prefixes of plain HTTP that lead here, by whole segments.
        stripped: the prefix that is removed from the paths; "": none.
        queue_max: how many requests may wait.
        queue_full_status: HTTP status beyond that.
        request_timeout_s: of requests that bring none; None: no limit.
    """

    name: str
    title: str
    targets: tuple[Target, ...]
    services: tuple[str, ...] = ()
    takes_grpc: bool = False
    prefixes: tuple[str, ...] = ()
    stripped: str = ""
    queue_max: int = 0
    queue_full_status: int = 503
    request_timeout_s: float | None = None


def backends_of(views: Collection[mesh_pb2.DeploymentView]) -> list[Backend]:
    """Return the backends whose calls go to replicas directly; all others go to the ingress.

    Only the ingress can serve deployments that share or mirror calls, or that have at present no
    replica with a port for balancers; services of several applications; and plain HTTP as soon as a
    service has paths of ``google.api.http``, which take precedence over any prefix.
    """
    named = Counter(service for view in views for service in view.services)
    has_rest = any(_has_rest(view) for view in views)
    found: list[Backend] = []
    for view in sorted(views, key=lambda each: (each.key.application, each.key.name)):
        if not view.traffic and not view.mirror:
            services = [each for each in view.services if named[each] == 1]
            found += _backends(view, tuple(services), () if has_rest else view.http_prefixes)
    return found


def _has_rest(view: mesh_pb2.DeploymentView) -> bool:
    files = filter(lambda file: _REST in file, view.file_descriptors)
    parsed = map(descriptor_pb2.FileDescriptorProto.FromString, files)
    # Files may describe services that this deployment does not have.
    return any(
        f"{file.package}.{service.name}".lstrip(".") in view.services
        for file in parsed
        for service in file.service
    )


def _backends(
    view: mesh_pb2.DeploymentView, services: tuple[str, ...], prefixes: Iterable[str]
) -> Iterator[Backend]:
    of_class = set(view.class_prefixes).intersection(prefixes)
    # For an application's prefix, a replica routes by the rest of the path. The ingress passes the
    # prefix on to it, and HAProxy does not.
    stripped = set(prefixes) - of_class - {"/"}
    whole = tuple(sorted(set(prefixes) - stripped))
    grpc = _targets(view, [each.endpoints.direct_grpc for each in view.replicas])
    http = _targets(view, [each.endpoints.direct_http for each in view.replicas])
    if grpc and services:
        yield _backend(view, "grpc", targets=grpc, services=services, takes_grpc=True)
    if http and (services or whole):
        yield _backend(view, "http", targets=http, services=services, prefixes=whole)
    if http:
        for prefix in sorted(stripped):
            yield _backend(view, "http", prefix, targets=http, prefixes=(prefix,), stripped=prefix)


def _backend(
    view: mesh_pb2.DeploymentView,
    *kind: str,
    targets: tuple[Target, ...],
    services: tuple[str, ...] = (),
    takes_grpc: bool = False,
    prefixes: tuple[str, ...] = (),
    stripped: str = "",
) -> Backend:
    application, deployment = view.key.application, view.key.name
    return Backend(
        name=name(application, deployment, *kind),
        title=f"{name(application)}/{name(deployment)}",
        targets=targets,
        services=services,
        takes_grpc=takes_grpc,
        prefixes=prefixes,
        stripped=stripped,
        queue_max=view.max_queued_requests,
        queue_full_status=view.queue_full_status or HTTPStatus.SERVICE_UNAVAILABLE,
        request_timeout_s=view.request_timeout_s or None,
    )


def _targets(view: mesh_pb2.DeploymentView, addresses: Iterable[str]) -> tuple[Target, ...]:
    """Return the replicas that can be reached and asked how they are, by their names."""
    found = [
        Target(name(replica.replica_id), address, health, replica.max_ongoing_requests)
        for replica, address in zip(view.replicas, addresses, strict=True)
        if address and (health := replica.endpoints.direct_http)
    ]
    return tuple(sorted(found, key=lambda each: each.name))
