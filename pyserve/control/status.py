"""The mesh's state as drivers and the command line read it. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator

from pyserve.control.applications import ApplicationInfo, Applications
from pyserve.control.rationing import Waits
from pyserve.control.reconfiguring import takes_on
from pyserve.control.state import Desired, MeshState, Phase, Replica
from pyserve.types import ApplicationName
from pyserve.wire.v1 import control_pb2, mesh_pb2


def application_statuses(
    state: MeshState, applications: Applications, waits: Waits
) -> list[control_pb2.ApplicationStatus]:
    """Return the status of every application, in the order of their names."""
    prefixes = applications.routes(state).of_application
    return [
        _application_status(state, name, info, prefixes.get(name, ""), waits)
        for name, info in sorted(applications.infos.items())
    ]


def _application_status(
    state: MeshState, name: ApplicationName, info: ApplicationInfo, prefix: str, waits: Waits
) -> control_pb2.ApplicationStatus:
    desired = sorted(state.of_application(name), key=lambda item: str(item.key))
    deployments = [_deployment_status(state, each, waits.of(each.key)) for each in desired]
    is_ending = all(each.target is None for each in desired)
    said = [f"{each.name}: {each.message}" for each in deployments if each.message]
    return control_pb2.ApplicationStatus(
        name=name,
        route_prefix=prefix,
        deployments=deployments,
        ingress_deployment=info.ingress_deployment,
        state="DELETING" if is_ending else _summary({each.state for each in deployments}),
        message="; ".join(said),
        deployed_at=info.deployed_at,
    )


def _summary(states: Container[str]) -> str:
    """Return the state of an application: the worst one among its deployments counts."""
    for worst in ("DEPLOY_FAILED", "UNHEALTHY"):
        if worst in states:
            return worst
    return "DEPLOYING" if "UPDATING" in states else "RUNNING"


def _deployment_status(
    state: MeshState, desired: Desired, waits: str
) -> control_pb2.DeploymentStatus:
    replicas = sorted(state.of_deployment(desired.key), key=lambda item: item.created_at)
    word, message = _health(state, desired, replicas)
    return control_pb2.DeploymentStatus(
        name=desired.key.deployment,
        state=word,
        message="; ".join(filter(None, (message, waits))),
        wanted=desired.target.num_replicas if desired.target is not None else 0,
        replicas=[_replica_status(replica) for replica in replicas],
        services=desired.services,
    )


def _health(state: MeshState, desired: Desired, replicas: list[Replica]) -> tuple[str, str]:
    failure = desired.failure.summary if desired.failure is not None else ""
    if desired.target is None:
        return "UPDATING", "is being removed"
    if desired.target.failed:
        return "DEPLOY_FAILED", failure
    if failure:
        failure = f"the last deploy failed, the version before serves on: {failure}"
    if not desired.target.completed:
        return "UPDATING", "replicas start"
    if takes_on(state, desired.key):
        return "UPDATING", "replicas take another user_config on"
    serving = sum(
        item.serves and not item.silent and item.version == desired.target.id for item in replicas
    )
    said = [*_ailments(replicas), *([failure] if failure else [])]
    if serving < desired.target.num_replicas:
        missing = f"{serving} of {desired.target.num_replicas} replicas serve"
        ends = dict.fromkeys(slot.last_end for slot in desired.target.slots.values())
        return "UNHEALTHY", "; ".join([missing, *filter(None, ends), *said])
    return "HEALTHY", "; ".join(said)


def _ailments(replicas: list[Replica]) -> Iterator[str]:
    """Yield why replicas are about to be replaced, unless they recover."""
    for replica in replicas:
        if replica.phase is Phase.RUNNING and replica.silent:
            yield f"replica {replica.id} does not answer health checks"
        elif _state(replica) == "UNHEALTHY":
            yield f"replica {replica.id} fails its health check: {replica.ailment}"


def _state(replica: Replica) -> str:
    if replica.phase is Phase.RUNNING and (replica.silent or not replica.joined):
        return "SILENT"
    if replica.phase is Phase.RUNNING and replica.health_failures:
        return "UNHEALTHY"
    return replica.phase.value


def _replica_status(replica: Replica) -> control_pb2.ReplicaStatus:
    return control_pb2.ReplicaStatus(
        replica_id=replica.id,
        state=_state(replica),
        pid=replica.pid,
        node=replica.place.node,
        endpoints=mesh_pb2.Endpoints(
            address=replica.place.address,
            unix_path=replica.place.unix_path,
            direct_http=replica.place.direct_http,
            direct_grpc=replica.place.direct_grpc,
        ),
    )
