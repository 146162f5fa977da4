"""The mesh's state, as drivers, the command line and metrics read it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

from pyserve.control.autoscaling.scaler import scaling_status
from pyserve.control.health import (
    Health,
    application_health,
    deployment_health,
    replica_word,
)
from pyserve.control.reconcile.start_limits import Waits
from pyserve.control.registry import WatchCounts
from pyserve.control.state.applications import Applications
from pyserve.control.state.mesh import Desired, MeshState, Phase, Replica
from pyserve.control.state.replica import ReplicaCounts
from pyserve.observe.metrics import Scrape, Tally
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2, mesh_pb2


def application_statuses(
    state: MeshState,
    applications: Applications,
    waits: Waits,
    changing: Container[ApplicationName] = (),
    ended: Callable[[DeploymentKey], Sequence[control_pb2.EndedReplica]] = lambda _: (),
) -> list[control_pb2.ApplicationStatus]:
    """Return the status of every application, in the order of their names.

    Args:
        state: of the mesh; ``observe`` has seen it as it is.
        applications: what is known of them besides.
        waits: the starts that wait for a place.
        changing: applications whose last deploy goes on in replicas that serve.
        ended: returns the replicas of a deployment that ended recently without having been told to.
    """
    prefixes = applications.routes(state).of_application
    replicas = state.replicas.by_deployment()
    statuses = []
    for name, info in sorted(applications.infos.items()):
        desired = list(state.of_application(name))
        parts = [
            _kept(state, each.key, deployment_health(each, replicas[each.key], waits.of(each.key)))
            for each in desired
        ]
        health = _kept(state, name, application_health(state, name, parts, changing))
        by_name = sorted(zip(desired, parts, strict=True), key=lambda each: each[0].key.deployment)
        deployments = [
            _deployment_status(state, each, part, replicas[each.key]) for each, part in by_name
        ]
        for status in deployments:
            status.ended.extend(ended(DeploymentKey(name, DeploymentName(status.name))))
        statuses.append(
            control_pb2.ApplicationStatus(
                name=name,
                route_prefix=prefixes.get(name, ""),
                deployments=deployments,
                ingress_deployment=info.ingress_deployment,
                state=health.word,
                message=health.message,
                deployed_at=info.deployed_at,
                reason=health.reason,
                since=_since(state, name, health),
                target_capacity=info.capacity.percent,
            )
        )
    return statuses


def _kept(state: MeshState, of: ApplicationName | DeploymentKey, health: Health) -> Health:
    """Return the former health while replicas are missing only because this controller is new."""
    application = of.application if isinstance(of, DeploymentKey) else of
    condition = state.conditions.get(of)
    if condition is None or health.word != "UNHEALTHY" or application not in state.awaited:
        return health
    return Health(condition.word, "a new controller waits for its replicas to join again", "")


def _since(state: MeshState, of: ApplicationName | DeploymentKey, health: Health) -> float:
    condition = state.conditions.get(of)
    # The condition may still be the one from before replicas were waited for.
    return condition.since if condition is not None and condition.word == health.word else 0.0


def _former(state: MeshState, of: DeploymentKey, health: Health) -> str:
    condition = state.conditions.get(of)
    if condition is None:
        return ""
    return condition.former if condition.word == health.word else condition.word


def _deployment_status(
    state: MeshState, desired: Desired, health: Health, replicas: list[Replica]
) -> control_pb2.DeploymentStatus:
    return control_pb2.DeploymentStatus(
        name=desired.key.deployment,
        state=health.word,
        message=health.message,
        wanted=_wanted(desired, replicas),
        replicas=[
            _replica_status(each) for each in sorted(replicas, key=lambda item: item.created_at)
        ],
        services=desired.services,
        reason=health.reason,
        since=_since(state, desired.key, health),
        scaling=scaling_status(desired.target, desired.decisions),
        trigger=status_trigger(desired, health.word, _former(state, desired.key, health)),
    )


def _wanted(desired: Desired, replicas: list[Replica]) -> int:
    if desired.target is None:
        return 0
    if desired.target.is_external:
        # Decided outside the mesh, where they are started.
        return sum(each.phase is not Phase.STOPPING for each in replicas)
    return desired.target.num_replicas


def _replica_status(replica: Replica) -> control_pb2.ReplicaStatus:
    return control_pb2.ReplicaStatus(
        replica_id=replica.id,
        state=replica_word(replica),
        pid=replica.pid,
        node=replica.place.node,
        endpoints=mesh_pb2.Endpoints(
            address=replica.place.address,
            unix_path=replica.place.unix_path,
            direct_http=replica.place.direct_http,
            direct_grpc=replica.place.direct_grpc,
        ),
        admin=replica.admin,
        version=replica.release,
        clock_ahead_s=replica.clock_ahead_s,
        costs=None
        if replica.costs is None
        else mesh_pb2.StepCosts(
            running=replica.costs.running,
            waiting=replica.costs.waiting,
            budget=replica.costs.budget,
        ),
    )


# The cause of a deployment's status, in the words of Ray Serve.

_OF_WORDS = {"UNHEALTHY": "HEALTH_CHECK_FAILED", "DEPLOY_FAILED": "REPLICA_STARTUP_FAILED"}
_SCALES = ("UPSCALING", "DOWNSCALING")
# Of one that is healthy, by how it was before.
_COMPLETED = {
    "UPSCALING": "UPSCALE_COMPLETED",
    "DOWNSCALING": "DOWNSCALE_COMPLETED",
    "UNHEALTHY": "UNSPECIFIED",
}


def status_trigger(desired: Desired, word: str, former: str) -> str:
    """Return one of the names of ``DeploymentStatusTrigger``.

    Args:
        desired: The deployment.
        word: How it is, as ``health`` puts it.
        former: How it was before; "": unknown.
    """
    if desired.target is None:
        return "DELETING"
    if word in _SCALES and desired.target.options.scaling is not None:
        return "AUTOSCALING"
    if word == "HEALTHY":
        return _COMPLETED.get(former, "CONFIG_UPDATE_COMPLETED")
    return _OF_WORDS.get(word, "CONFIG_UPDATE_STARTED")


_HEALTHY = "RUNNING"


def add_mesh(
    scrape: Scrape,
    reply: control_pb2.StatusReply,
    counts: Mapping[DeploymentKey, ReplicaCounts],
) -> None:
    """Add the health of applications and deployments, and counts of their replicas."""
    for application in reply.applications:
        name = "pyserve_application_status"
        scrape.add(name, 1, application=application.name, status=application.state)
        for deployment in application.deployments:
            _add_deployment(scrape, application.name, deployment)
    for key, counted in counts.items():
        labels = {"application": key.application, "deployment": key.deployment}
        scrape.add("pyserve_deployment_replica_starts_total", counted.starts, **labels)
        scrape.add("pyserve_deployment_replica_ready_total", counted.ready, **labels)
        times = counted.start_times
        scrape.add_histogram("pyserve_deployment_replica_start_seconds", times, **labels)
        times = counted.stop_times
        scrape.add_histogram("pyserve_deployment_replica_stop_seconds", times, **labels)
        for how, value in counted.ends.items():
            scrape.add("pyserve_deployment_replica_ends_total", value, how=how, **labels)


def _add_deployment(
    scrape: Scrape, application: str, deployment: control_pb2.DeploymentStatus
) -> None:
    labels = {"application": application, "deployment": deployment.name}
    scrape.add("pyserve_deployment_status", 1, status=deployment.state, **labels)
    scrape.add("pyserve_deployment_wanted_replicas", deployment.wanted, **labels)
    states = Counter({_HEALTHY: 0})
    for replica in deployment.replicas:
        states[replica.state] += 1
        is_healthy = replica.state == _HEALTHY
        name = "pyserve_deployment_replica_healthy"
        scrape.add(name, is_healthy, replica=replica.replica_id, **labels)
    for state, value in states.items():
        scrape.add("pyserve_deployment_replicas", value, state=state, **labels)


def add_controller(scrape: Scrape, steps: Tally, watching: WatchCounts) -> None:
    """Add the metrics of the controller itself."""
    scrape.add_histogram("pyserve_controller_step_seconds", steps)
    scrape.add("pyserve_controller_watchers", watching.watchers)
    scrape.add("pyserve_controller_lagging_watchers", watching.lagging)
    scrape.add("pyserve_controller_view_version", watching.version)
    scrape.add("pyserve_controller_updates_total", watching.updates)
