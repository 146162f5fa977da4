"""From views of the mesh to the backends of a balancer outside, and its ingresses. Pure.

Beside the views, a configuration of HAProxy has a few options.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from google.protobuf import descriptor_pb2

from pyserve.config import is_everywhere, is_loopback, local_host
from pyserve.config.ingress import IngressSettings
from pyserve.wire.v1 import control_pb2, mesh_pb2

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


# Words of HAProxy's configuration language, made from texts of users.

# Characters that need no quotes anywhere in the language; most paths and names have only these.
_PLAIN = re.compile(r"[A-Za-z0-9_./:@=,+~\-]")
# The characters that HAProxy allows in names of sections and servers, except the colon. It joins
# the parts of a name, so a part must not have one.
_OF_NAMES = re.compile(r"[A-Za-z0-9_.\-]")


def word(text: str) -> str:
    """Return one argument of a line that HAProxy reads as ``text``, whatever is in it.

    Raises:
        ValueError: it is empty or holds a NUL, which no argument can.
    """
    if not text or "\0" in text:
        raise ValueError(f"{text!r} cannot be an argument in a configuration of HAProxy")
    return "".join(map(_escaped, text))


def name(*parts: str) -> str:
    """Return the name of a section or a server; different parts give different names."""
    return ":".join("".join(map(_in_name, part)) for part in parts)


def seconds(time_s: float) -> str:
    """Return a time as HAProxy reads it, in whole milliseconds and at least one."""
    return f"{max(1, min(round(time_s * 1000), TIME_MAX_MS))}ms"


# The longest time that HAProxy takes is 2^31 - 1 ms; less, so that no timer of it wraps.
TIME_MAX_MS = 24 * 24 * 3600 * 1000
FOREVER = f"{TIME_MAX_MS}ms"


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def _in_name(character: str) -> str:
    if _OF_NAMES.fullmatch(character):
        return character
    # A replica is called Echo#k3f2x.
    return ":" if character == "#" else f":{ord(character):x}:"


# Where the ingresses of a mesh are, for an HAProxy that falls back to them.

# An ingress goes on without its controller, and is at the next one within a second or two; on a
# busy machine it takes longer.
KEPT_S = 30.0


class Ingresses:
    """Remembers where ingresses were: a controller that has just started knows of none."""

    def __init__(self) -> None:
        # By machine: the address, and when it was last heard of.
        self._seen: dict[str, tuple[str, float]] = {}
        self._speaks_tls = False

    def place(self, reply: control_pb2.StatusReply, controller: str, now: float) -> IngressPlace:
        """Return where they are, those that were there a moment ago included.

        Args:
            reply: What the controller says.
            controller: Where it is for who asks, ``host:port`` or ``unix:PATH``.
            now: The time.
        """
        if reply.addresses:
            self._speaks_tls = reply.ingress.speaks_tls
        for machine, address in _by_machine(reply.addresses, controller).items():
            self._seen[machine] = (address, now)
        self._seen = {
            machine: (address, seen)
            for machine, (address, seen) in self._seen.items()
            if now - seen < KEPT_S
        }
        addresses = tuple(address for address, _ in self._seen.values())
        return IngressPlace(addresses=addresses, speaks_tls=self._speaks_tls)


def _by_machine(addresses: Iterable[str], controller: str) -> dict[str, str]:
    """Return one address for each machine; a process listens at all of them, and at each alike."""
    remote = "" if controller.startswith("unix:") else controller.rpartition(":")[0]
    found: dict[str, str] = {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        if is_everywhere(host):
            host = remote or local_host(host)
        machine = "loopback" if is_loopback(host) else host
        found.setdefault(machine, f"{host}:{port}")
    return found


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """How HAProxy proves who it is to the mesh, and the mesh to HAProxy.

    Attributes:
        ca_file: roots of the certificates in the mesh.
        pem_file: a certificate and its key in one file; None: it shows none.
        server_name: a DNS name that the certificates must carry; "": any that the roots signed.
    """

    ca_file: Path
    pem_file: Path | None = None
    server_name: str = ""


@dataclass(frozen=True, kw_only=True)
class HaproxyOptions:
    """Where HAProxy listens, and what holds for its clients and servers.

    Attributes:
        binds: ``host:port`` each, or ``*:port``.
        bind_pem: a certificate and its key in one file; None: clients speak in plain text.
        ingress: limits and times, those of the ingress.
        tls: for servers that speak TLS; None: none can be reached.
        direct_speaks_tls: the ports of replicas take certificates.
        stats_socket: path of a socket for HAProxy's own commands; None: only its master has one.
    """

    binds: tuple[str, ...] = ("127.0.0.1:8080",)
    bind_pem: Path | None = None
    ingress: IngressSettings = field(default_factory=IngressSettings)
    tls: ServerTls | None = None
    direct_speaks_tls: bool = False
    stats_socket: Path | None = None


@dataclass(frozen=True, kw_only=True)
class IngressPlace:
    """The ingress that HAProxy falls back to.

    Attributes:
        addresses: ``host:port`` each, as HAProxy reaches them; (): there is none.
        speaks_tls: whether it does.
    """

    addresses: tuple[str, ...] = ()
    speaks_tls: bool = False
