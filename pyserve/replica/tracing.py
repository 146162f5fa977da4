"""Begins the traces of a replica, before its user code is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyserve.observe.traces.process import PROCESS_TRACING, ProcessIdentity

if TYPE_CHECKING:
    from pyserve.replica.worker import WorkerSettings


def trace_replica(settings: WorkerSettings, replica_id: str) -> None:
    """Let this process make spans, if its settings say so."""
    identity = ProcessIdentity(
        service=settings.deployment,
        instance=replica_id,
        application=settings.application,
        deployment=settings.deployment,
        replica=replica_id,
        node=settings.mesh.node.node_id,
    )
    PROCESS_TRACING.start(settings.mesh.tracing, identity)
