"""Sets up tracing and delay records of a replica's calls, before its user code is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyserve.observe.delays import PROCESS_DELAYS
from pyserve.observe.traces.process import PROCESS_TRACING, ProcessIdentity

if TYPE_CHECKING:
    from pyserve.replica.worker import WorkerSettings


def observe_calls(settings: WorkerSettings, replica_id: str) -> None:
    """Keep what the calls of this process wait for, and make spans if its settings say so."""
    PROCESS_DELAYS.is_on = True
    identity = ProcessIdentity(
        service=settings.deployment,
        instance=replica_id,
        application=settings.application,
        deployment=settings.deployment,
        replica=replica_id,
        node=settings.mesh.node.node_id,
    )
    PROCESS_TRACING.start(settings.mesh.tracing, identity)
