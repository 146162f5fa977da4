"""Replicas that are started from outside: ``pyserve replica`` by compose, systemd or others.

Such replicas can join every mesh (``pyserve.control.replicas.externals``). With this launcher a
mesh has no others: it starts nothing itself, and refuses deploys with that reason.
"""

from __future__ import annotations

from pyserve.config.capabilities import Capabilities
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.replicas.launching import Events, ReplicaOrder
from pyserve.types import ReplicaId

_STARTS_NONE = (
    "it starts no replicas, others do; start each with `pyserve replica MODULE:ATTRIBUTE "
    "--deployment NAME`, or the mesh with another launcher"
)


class ExternalLauncher:
    """Starts nothing, and has no processes to watch."""

    name = "external"
    capabilities = Capabilities(starts_none=_STARTS_NONE)

    def __init__(self) -> None:
        self._events = Events()

    async def open(self) -> None:
        """See ``Launcher.open``; there is nothing to prepare."""

    async def start(self, order: ReplicaOrder) -> int:
        """Refuse it: of a deploy that was let in by a controller with another launcher."""
        raise OSError(f"the launcher {self.name!r} has no {order.replica_id}: {_STARTS_NONE}")

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """See ``Launcher.stop``; an external replica gets this over its stream, and ends itself."""

    def room(self) -> Room:
        """Return room for one start at a time; each of them fails."""
        return Room(starts_max=1, why=_STARTS_NONE)

    def watch(self) -> Events:
        """See ``Launcher.watch``; external replicas report their state over their own streams."""
        return self._events

    async def close(self) -> None:
        """End the watch; see ``Launcher.close``."""
        self._events.close()
