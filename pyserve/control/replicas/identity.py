"""Names replicas, and reads how they describe themselves when they join. Pure but for chance."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Container

from pyserve.control.state.mesh import (
    EXTERNAL_SLOT,
    Desired,
    MeshState,
    Phase,
    Place,
    Replica,
    Version,
)
from pyserve.control.state.replica_index import ReplicaIndex
from pyserve.types import DeploymentKey, ReplicaId, ServiceName
from pyserve.wire.v1 import mesh_pb2

# Letters and digits that are not confused, for names that people read aloud.
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 5


def new_id(key: DeploymentKey, taken: Container[ReplicaId]) -> ReplicaId:
    """Return a name that no other replica has."""
    while True:
        letters = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
        name = ReplicaId(f"{key.deployment}#{letters}")
        if name not in taken:
            return name


def new_replica(
    key: DeploymentKey,
    version: Version,
    slot: int,
    now: float,
    others: ReplicaIndex,
    name: str = "",
) -> Replica:
    """Return a replica that has not reported yet; without a name it gets one."""
    replica_id = ReplicaId(name) if name else new_id(key, others)
    return Replica(
        id=replica_id,
        gang=_gang(key, version, slot, others) or replica_id if _has_gang(version, slot) else "",
        key=key,
        version=version.id,
        options=version.options,
        slot=slot,
        created_at=now,
        calls=version.calls,
    )


def _has_gang(version: Version, slot: int) -> bool:
    return version.options.gang_size > 1 and slot != EXTERNAL_SLOT


def _gang(key: DeploymentKey, version: Version, slot: int, others: ReplicaIndex) -> str:
    """Return the name of a slot's gang; "": none of its members has been started yet."""
    first = slot - slot % version.options.gang_size
    found = (
        each.gang
        for each in others.of(key).values()
        if each.version == version.id and each.phase is not Phase.STOPPING and each.slot == first
    )
    return next(found, "")


def gang_message(replica: Replica, others: ReplicaIndex) -> mesh_pb2.Gang | None:
    """Return the description of its gang that a replica gets; ``None``: it has no gang."""
    if not replica.gang:
        return None
    mine = [each for each in others.of(replica.key).values() if each.gang == replica.gang]
    return mesh_pb2.Gang(
        id=replica.gang,
        rank=replica.slot % replica.options.gang_size,
        replicas=[each.id for each in sorted(mine, key=lambda item: item.slot)],
    )


def place_of(hello: mesh_pb2.Hello, known: Place) -> Place:
    """Return where a joining replica runs, by its own report or else its launcher's."""
    return Place(node=hello.node, zone=hello.zone or known.zone)


def ready_place(replica: Replica, ready: mesh_pb2.Ready) -> Place:
    """Return the place of a replica that listens now."""
    return dataclasses.replace(
        replica.place,
        address=ready.endpoints.address,
        unix_path=ready.endpoints.unix_path,
        direct_http=ready.endpoints.direct_http,
        direct_grpc=ready.endpoints.direct_grpc,
        proves_itself=ready.endpoints.proves_itself,
    )


def learn_services(desired: Desired, ready: mesh_pb2.Ready) -> None:
    """Take what a replica offers as that of its deployment."""
    desired.services = tuple(map(ServiceName, ready.services))
    desired.file_descriptors = tuple(ready.file_descriptors)
    desired.http, desired.http_prefixes = ready.http, tuple(ready.http_prefixes)
    desired.idempotent_methods = tuple(ready.idempotent_methods)


def drop_unused(state: MeshState, specs: dict[str, mesh_pb2.DeploymentSpec]) -> None:
    """Drop the code of versions that nothing runs."""
    used = state.replicas.versions()
    for desired in state.deployments.values():
        used |= {item.id for item in (desired.target, desired.fallback) if item is not None}
    for unused in specs.keys() - used:
        del specs[unused]
