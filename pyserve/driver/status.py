"""What runs in a mesh, as plain values: the answer of ``pyserve.status()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyserve.wire.v1 import control_pb2


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica process.

    Attributes:
        replica_id: Unique in the mesh.
        state: ``STARTING``, ``RUNNING`` or ``STOPPING``.
        pid: Of the process, on its node.
        node: Name of the machine.
        address: ``host:port`` where it listens, "" before it is ready.
        direct_http: ``host:port`` where balancers outside of the mesh reach it; "": nowhere.
        direct_grpc: The same for gRPC.
    """

    replica_id: str
    state: str
    pid: int
    node: str
    address: str
    direct_http: str = ""
    direct_grpc: str = ""


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    """One deployment.

    Attributes:
        name: Unique in its application.
        status: ``UPDATING``, ``HEALTHY``, ``UNHEALTHY`` or ``DEPLOY_FAILED``.
        message: Why, where there is something to say.
        wanted: How many replicas shall run.
        replicas: Those that run, start or stop.
        services: Full names of the gRPC services.
    """

    name: str
    status: str
    message: str
    wanted: int
    replicas: tuple[ReplicaStatus, ...]
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """One application and its deployments by name.

    Attributes:
        name: Unique in the mesh.
        route_prefix: Where plain HTTP reaches it; "": nowhere.
        deployments: By name.
        ingress_deployment: The one that ``run`` returned a handle of.
    """

    name: str
    route_prefix: str
    deployments: Mapping[str, DeploymentStatus]
    ingress_deployment: str = ""


@dataclass(frozen=True, slots=True)
class IngressStatus:
    """The ingress: the calls in it, all zero when it is idle, and what it has counted.

    Attributes:
        in_flight: Calls that have not ended.
        parked: Those of them that wait for a replica.
        in_flight_of_replica: Calls sent to a replica, by its id, as the router counts them.
        speaks_tls: Clients have to speak TLS.
        counts: What clients did since the start, by name, and ``connections``, those that are
            open now; ``docs/reference/ingress.md`` explains each. Empty without an ingress.
    """

    in_flight: int
    parked: int
    in_flight_of_replica: Mapping[str, int]
    speaks_tls: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeshStatus:
    """A whole mesh.

    Attributes:
        version: Of pyserve, in the controller's process.
        controller_pid: The controller's process.
        addresses: ``host:port`` each, where the ingress listens.
        applications: By name.
        ingress: What is in the ingress of the controller's process.
        notices: What people should know about the mesh as a whole, a line each.
    """

    version: str
    controller_pid: int
    addresses: tuple[str, ...]
    applications: Mapping[str, ApplicationStatus]
    ingress: IngressStatus
    notices: tuple[str, ...] = ()


def read_status(reply: control_pb2.StatusReply) -> MeshStatus:
    """Return the values of a controller's answer."""
    return MeshStatus(
        version=reply.version,
        controller_pid=reply.controller_pid,
        addresses=tuple(reply.addresses),
        applications={each.name: _application(each) for each in reply.applications},
        ingress=IngressStatus(
            in_flight=reply.ingress.in_flight,
            parked=reply.ingress.parked,
            in_flight_of_replica=dict(reply.ingress.in_flight_of_replica),
            speaks_tls=reply.ingress.speaks_tls,
            counts=dict(sorted(reply.ingress.counts.items())),
        ),
        notices=tuple(reply.notices),
    )


def _application(message: control_pb2.ApplicationStatus) -> ApplicationStatus:
    deployments = {each.name: _deployment(each) for each in message.deployments}
    return ApplicationStatus(
        message.name, message.route_prefix, deployments, message.ingress_deployment
    )


def _deployment(message: control_pb2.DeploymentStatus) -> DeploymentStatus:
    return DeploymentStatus(
        name=message.name,
        status=message.state,
        message=message.message,
        wanted=message.wanted,
        replicas=tuple(
            ReplicaStatus(
                each.replica_id,
                each.state,
                each.pid,
                each.node,
                each.endpoints.address,
                each.endpoints.direct_http,
                each.endpoints.direct_grpc,
            )
            for each in message.replicas
        ),
        services=tuple(message.services),
    )
