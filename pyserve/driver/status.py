"""What runs in a mesh, as plain values: the answer of ``pyserve.status()``.

States are texts and members of the enumerations below, whose names are those of Ray Serve. Some
of these it never says; they are there for code that compares with them.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyserve.wire.v1 import control_pb2


class ApplicationStatus(enum.StrEnum):
    """How an application is."""

    NOT_STARTED = "NOT_STARTED"
    DEPLOYING = "DEPLOYING"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


class DeploymentStatus(enum.StrEnum):
    """How a deployment is; ``UPSCALING`` and ``DOWNSCALING`` by autoscaling, or from outside."""

    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    UPSCALING = "UPSCALING"
    DOWNSCALING = "DOWNSCALING"


class DeploymentStatusTrigger(enum.StrEnum):
    """The cause of a deployment's status."""

    UNSPECIFIED = "UNSPECIFIED"
    CONFIG_UPDATE_STARTED = "CONFIG_UPDATE_STARTED"
    CONFIG_UPDATE_COMPLETED = "CONFIG_UPDATE_COMPLETED"
    UPSCALE_COMPLETED = "UPSCALE_COMPLETED"
    DOWNSCALE_COMPLETED = "DOWNSCALE_COMPLETED"
    AUTOSCALING = "AUTOSCALING"
    REPLICA_STARTUP_FAILED = "REPLICA_STARTUP_FAILED"
    HEALTH_CHECK_FAILED = "HEALTH_CHECK_FAILED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    DELETING = "DELETING"


class ReplicaState(enum.StrEnum):
    """Where a replica is in its life; in pyserve one of the first three."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    UPDATING = "UPDATING"
    RECOVERING = "RECOVERING"
    PENDING_MIGRATION = "PENDING_MIGRATION"


class ProxyStatus(enum.StrEnum):
    """How the ingress of a node is."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"


@dataclass(frozen=True, slots=True)
class ReplicaCosts:
    """What the requests of a continuously batched class cost, in its unit; else 1 each.

    Attributes:
        running: What the states that it holds take of the budget.
        waiting: What the requests cost that wait for a state.
        budget: What the states may take; ``None``: there is no limit.
    """

    running: float
    waiting: float
    budget: float | None


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica process.

    Attributes:
        replica_id: Unique in the mesh.
        state: ``STARTING``, ``RUNNING`` or ``STOPPING``; of those that run ``SILENT``, does not
            answer, ``UNHEALTHY``, fails its health check, and ``CORDONED``, gets no new calls.
        pid: Of the process, on its node.
        node: Name of the machine.
        address: ``host:port`` where it listens, "" before it is ready.
        direct_http: ``host:port`` where balancers outside of the mesh reach it; "": nowhere.
        direct_grpc: The same for gRPC.
        costs: As of the last second; ``None``: its class is not batched continuously, or has had
            no request yet.
    """

    replica_id: str
    state: str
    pid: int
    node: str
    address: str
    direct_http: str = ""
    direct_grpc: str = ""
    costs: ReplicaCosts | None = None


@dataclass(frozen=True, slots=True)
class EndedReplica:
    """A replica whose process has ended by itself, or because it did not do.

    Attributes:
        replica_id: Unique in the mesh.
        ended_at_s: When, Unix time.
        summary: How.
        lines: What it has written last.
    """

    replica_id: str
    ended_at_s: float
    summary: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """A change of the number of replicas, or of the advice.

    Attributes:
        at_s: When it was decided, Unix time.
        before, after: How many there should be.
        reason: Why.
    """

    at_s: float
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """What decides how many replicas a deployment has.

    Attributes:
        target: How many there shall be; where it is advisory, should be.
        reason: Why.
        since: When that was decided, Unix time in seconds; 0: not yet.
        pending: How many are wanted, but for a delay that runs.
        min_replicas, max_replicas: Bounds; 0: an outer scaler decides.
        is_advisory: Nothing follows it.
        ready_after_s: How long replicas take to start; 0: not known yet.
        decisions: At most the last 20 of this controller, latest last.
    """

    target: int
    reason: str
    since: float
    pending: int
    min_replicas: int
    max_replicas: int
    is_advisory: bool
    ready_after_s: float
    decisions: tuple[ScalingDecision, ...] = ()


@dataclass(frozen=True, slots=True)
class DeploymentStatusOverview:
    """One deployment.

    Attributes:
        name: Unique in its application.
        status: A text, and a member of the enumeration.
        message: What people should look at; "": nothing is the matter.
        wanted: How many replicas shall run.
        replicas: Those that run, start or stop.
        services: Full names of the gRPC services.
        reason: Why it has this status, in a sentence.
        since_s: Unix time from which on it has had it; 0: unknown.
        scaling: What decides how many replicas there are; ``None``: the deploy alone.
        ended: Replicas that have ended in the last hour and were not to, at most three, latest
            last.
        status_trigger: What has brought it to its status; a text, and a member of the enumeration.
    """

    name: str
    status: DeploymentStatus
    message: str
    wanted: int
    replicas: tuple[ReplicaStatus, ...]
    services: tuple[str, ...]
    reason: str = ""
    since_s: float = 0.0
    scaling: Scaling | None = None
    ended: tuple[EndedReplica, ...] = ()
    status_trigger: DeploymentStatusTrigger = DeploymentStatusTrigger.UNSPECIFIED

    @property
    def costs(self) -> ReplicaCosts | None:
        """What the requests of all replicas cost; ``None``: none has said it."""
        found = [each.costs for each in self.replicas if each.costs is not None]
        if not found:
            return None
        budgets = [each.budget for each in found if each.budget is not None]
        return ReplicaCosts(
            sum(each.running for each in found),
            sum(each.waiting for each in found),
            sum(budgets) if len(budgets) == len(found) else None,
        )

    @property
    def replica_states(self) -> Mapping[ReplicaState, int]:
        """How many replicas there are of each state; ``SILENT``, ``UNHEALTHY`` and others run."""
        return dict(Counter(_state(each) for each in self.replicas))


@dataclass(frozen=True, slots=True)
class ApplicationStatusOverview:
    """One application and its deployments by name.

    Attributes:
        name: Unique in the mesh.
        route_prefix: Where plain HTTP reaches it; "": nowhere.
        deployments: By name.
        ingress_deployment: The one that ``run`` returned a handle of.
        status: A text, and a member of the enumeration: that of its worst deployment.
        message: What its deployments have to say, with their names.
        last_deployed_time_s: Unix time of the deploy.
        reason: Why it has this status, in a sentence.
        since_s: Unix time from which on it has had it; 0: unknown.
        target_capacity: How much of its numbers of replicas its file wants, in percent.
    """

    name: str
    route_prefix: str
    deployments: Mapping[str, DeploymentStatusOverview]
    ingress_deployment: str
    status: ApplicationStatus
    message: str
    last_deployed_time_s: float
    reason: str = ""
    since_s: float = 0.0
    target_capacity: float | None = None


@dataclass(frozen=True, slots=True)
class RoutedDeployment:
    """The calls of one deployment, as the router of an ingress counts them.

    Attributes:
        in_flight: Calls that replicas have now.
        parked: Calls that wait for one.
        counts: By name, since the ingress knows the deployment; ``docs/reference/ingress.md``
            explains each.
    """

    in_flight: int
    parked: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IngressStatus:
    """One ingress, or all that are connected together.

    It has the calls that are in it, all zero when it is idle, and what it has counted. Its text
    leaves the mappings out, which nobody could read in a notebook.

    Attributes:
        in_flight: Calls that have not ended.
        parked: Those of them that wait for a replica.
        in_flight_of_replica: Calls sent to a replica, by its id, as the router counts them.
        speaks_tls: Clients have to speak TLS.
        node: Name of the machine where it listens; "": nowhere.
        is_draining: It takes nothing more.
        counts: What clients did since the start, by name, and ``connections``, those that are
            open now; ``docs/reference/ingress.md`` explains each. Empty without an ingress.
        deployments: What the router has done for each, by ``application/Deployment``.
        uptime_s: Seconds since it was started.
        limits: By the names of ``pyserve.config.IngressSettings``, sizes in bytes and times in
            seconds; without those that are not limited.
        state: Of one ingress, as are all of the following; ``None`` of all together.
        message: Why, where there is something to say.
        since_time_s: Unix time from when on it has been in that state.
        pid: Of its process, on its node.
        addresses: ``host:port`` each, where it listens.
        admin: ``host:port`` of its node's metrics; "": they are not shown.
    """

    in_flight: int
    parked: int
    in_flight_of_replica: Mapping[str, int] = field(repr=False)
    speaks_tls: bool = False
    counts: Mapping[str, int] = field(default_factory=dict, repr=False)
    node: str = ""
    is_draining: bool = False
    deployments: Mapping[str, RoutedDeployment] = field(default_factory=dict, repr=False)
    uptime_s: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict, repr=False)
    state: ProxyStatus | None = None
    message: str = ""
    since_time_s: float = 0.0
    pid: int = 0
    addresses: tuple[str, ...] = ()
    admin: str = ""


# Of several ingresses of one node the first of these counts. One that has ended in order is past.
_WORST_FIRST = (
    ProxyStatus.UNHEALTHY,
    ProxyStatus.DRAINING,
    ProxyStatus.STARTING,
    ProxyStatus.HEALTHY,
    ProxyStatus.DRAINED,
)


@dataclass(frozen=True, slots=True)
class MeshStatus:
    """A whole mesh.

    Attributes:
        version: Of pyserve, in the controller's process.
        controller_pid: The controller's process.
        addresses: ``host:port`` each, where ingresses listen.
        applications: By name.
        ingress: What is in all ingresses that are connected.
        notices: What people should know about the mesh as a whole, a line each.
        ingresses: Each of them, and those that have gone in the last minute.
        target_capacity: What the file that was deployed last says of all its applications.
        admin: ``host:port`` of the controller's metrics, where no ingress of its node shows them.
    """

    version: str
    controller_pid: int
    addresses: tuple[str, ...]
    applications: Mapping[str, ApplicationStatusOverview]
    ingress: IngressStatus
    notices: tuple[str, ...] = ()
    ingresses: tuple[IngressStatus, ...] = ()
    target_capacity: float | None = None
    admin: str = ""

    @property
    def proxies(self) -> Mapping[str, ProxyStatus]:
        """How ingresses are, by the names of their nodes; empty where there is none.

        Of several on one node, that of the one which needs to be looked at first.
        """
        found: dict[str, ProxyStatus] = {}
        for each in self.ingresses:
            if each.state is not None:
                states = (each.state, found.get(each.node, each.state))
                found[each.node] = min(states, key=_WORST_FIRST.index)
        return found


def plain_values(found: MeshStatus) -> dict[str, Any]:
    """Return what JSON and YAML can hold, with what is counted from the rest besides."""
    values: dict[str, Any] = asdict(found)
    for application in found.applications.values():
        deployments = values["applications"][application.name]["deployments"]
        for each in application.deployments.values():
            deployments[each.name]["replica_states"] = dict(each.replica_states)
            deployments[each.name]["costs"] = None if each.costs is None else asdict(each.costs)
    return values | {"proxies": dict(found.proxies)}


def read_status(reply: control_pb2.StatusReply) -> MeshStatus:
    """Return the values of a controller's answer."""
    return MeshStatus(
        version=reply.version,
        controller_pid=reply.controller_pid,
        addresses=tuple(reply.addresses),
        applications={each.name: _application(each) for each in reply.applications},
        ingress=_ingress(reply.ingress),
        notices=tuple(reply.notices),
        ingresses=tuple(map(_ingress, reply.ingresses)),
        target_capacity=_capacity(reply),
        admin=reply.admin,
    )


def _capacity(
    message: control_pb2.StatusReply | control_pb2.ApplicationStatus,
) -> float | None:
    return message.target_capacity if message.HasField("target_capacity") else None


def _ingress(message: control_pb2.IngressStatus) -> IngressStatus:
    return IngressStatus(
        in_flight=message.in_flight,
        parked=message.parked,
        in_flight_of_replica=dict(message.in_flight_of_replica),
        speaks_tls=message.speaks_tls,
        counts=dict(sorted(message.counts.items())),
        node=message.node,
        is_draining=message.is_draining,
        deployments={
            f"{each.key.application}/{each.key.name}": RoutedDeployment(
                each.in_flight, each.parked, dict(sorted(each.counts.items()))
            )
            for each in message.deployments
        },
        uptime_s=message.uptime_s,
        limits=dict(sorted(message.limits.items())),
        state=ProxyStatus(message.state) if message.state else None,
        message=message.message,
        since_time_s=message.since,
        pid=message.pid,
        addresses=tuple(message.addresses),
        admin=message.admin,
    )


def _application(message: control_pb2.ApplicationStatus) -> ApplicationStatusOverview:
    return ApplicationStatusOverview(
        name=message.name,
        route_prefix=message.route_prefix,
        deployments={each.name: _deployment(each) for each in message.deployments},
        ingress_deployment=message.ingress_deployment,
        status=ApplicationStatus(message.state),
        message=message.message,
        last_deployed_time_s=message.deployed_at,
        reason=message.reason,
        since_s=message.since,
        target_capacity=_capacity(message),
    )


def _state(replica: ReplicaStatus) -> ReplicaState:
    known = (ReplicaState.STARTING, ReplicaState.STOPPING)
    return next((each for each in known if each == replica.state), ReplicaState.RUNNING)


def _costs(message: control_pb2.ReplicaStatus) -> ReplicaCosts | None:
    if not message.HasField("costs"):
        return None
    costs = message.costs
    return ReplicaCosts(costs.running, costs.waiting, costs.budget or None)


def _scaling(message: control_pb2.DeploymentStatus) -> Scaling | None:
    if not message.HasField("scaling"):
        return None
    found = message.scaling
    decisions = tuple(
        ScalingDecision(each.at, each.before, each.after, each.reason) for each in found.decisions
    )
    plain = (name for name in Scaling.__slots__ if name != "decisions")
    return Scaling(**{name: getattr(found, name) for name in plain}, decisions=decisions)


def _deployment(message: control_pb2.DeploymentStatus) -> DeploymentStatusOverview:
    return DeploymentStatusOverview(
        name=message.name,
        status=DeploymentStatus(message.state),
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
                _costs(each),
            )
            for each in message.replicas
        ),
        services=tuple(message.services),
        reason=message.reason,
        since_s=message.since,
        scaling=_scaling(message),
        ended=tuple(
            EndedReplica(each.replica_id, each.ended_at, each.summary, tuple(each.lines))
            for each in message.ended
        ),
        status_trigger=_trigger(message.trigger),
    )


def _trigger(name: str) -> DeploymentStatusTrigger:
    """Return what a controller says; one of another release may say nothing, or another word."""
    known = DeploymentStatusTrigger
    return known(name) if name in known.__members__ else known.UNSPECIFIED
