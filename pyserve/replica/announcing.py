"""A replica's messages to the controller about itself: its identity, then what it serves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyserve.aio._loaded import loaded_files
from pyserve.api.context import GangContext, ReplicaContext
from pyserve.replica.idempotence import idempotent_paths
from pyserve.replica.loading import Loaded, add_inference
from pyserve.replica.servicers import file_descriptors
from pyserve.types import ReplicaId, ReplicaRank
from pyserve.version import version
from pyserve.wire.v1 import mesh_pb2

if TYPE_CHECKING:
    from pyserve.replica.worker import WorkerSettings


def ready(
    assign: mesh_pb2.Assign,
    loaded: Loaded,
    endpoints: mesh_pb2.Endpoints,
    plain_service: str,
    *,
    takes_http: bool,
) -> mesh_pb2.Ready:
    """Return the message with its services and addresses."""
    found = mesh_pb2.Ready(
        endpoints=endpoints,
        # A service of the .proto may have the name of the plain one.
        services=list(dict.fromkeys((*(each.name for each in loaded.services), plain_service))),
        file_descriptors=_descriptors(loaded),
        deployment_version=assign.deployment_version,
        config=assign.config,
        http=takes_http,
        idempotent_methods=idempotent_paths(loaded.target, loaded.methods, plain_service),
    )
    add_inference(found, loaded)
    return found


def _descriptors(loaded: Loaded) -> list[bytes]:
    services = [service.file for service in loaded.services]
    return file_descriptors([*services, *loaded_files()] if services else [])


def first_context(settings: WorkerSettings, assign: mesh_pb2.Assign) -> ReplicaContext:
    """Return the message with its identity, sent before anything is constructed."""
    return ReplicaContext(
        app_name=settings.application,
        deployment=settings.deployment,
        replica_id=ReplicaId(assign.replica_id),
        servable_object=None,
        rank=ReplicaRank(assign.rank.rank, assign.rank.node_rank, assign.rank.local_rank),
        world_size=assign.world_size,
        gang_context=_gang_context(assign),
    )


def _gang_context(assign: mesh_pb2.Assign) -> GangContext | None:
    if not assign.HasField("gang"):
        return None
    gang = assign.gang
    members = tuple(map(ReplicaId, gang.replicas))
    return GangContext(gang.id, gang.rank, len(members), members)


def hello(settings: WorkerSettings) -> mesh_pb2.Hello:
    """Return who it is."""
    return mesh_pb2.Hello(
        replica_id=settings.replica_id,
        application=settings.application,
        deployment=settings.deployment,
        version=version(),
        pid=os.getpid(),
        node=settings.mesh.node.node_id,
        zone=settings.mesh.node.zone,
        external=settings.external,
        admin=settings.admin,
    )
