"""Continues where an earlier controller ended, and stores what the next one needs.

The thin driver of ``restoring`` and ``recording``: the controller calls it in each step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyserve.control.drivers.runs import Runs
from pyserve.control.reconcile.decide import Action
from pyserve.control.recovery.recording import Memory, Recorder, Specs
from pyserve.control.recovery.restoring import Hold, restore
from pyserve.control.replicas.identity import drop_unused
from pyserve.control.replicas.starting import Processes
from pyserve.control.views.registry import Registry
from pyserve.errors import MeshError

_LOGGER = logging.getLogger(__name__)


class Recovery:
    """Keeps a controller's memory and its store the same.

    Args:
        memory: of the controller; empty until ``resume``.
        recorder: writes it.
        processes: of the replicas.
        registry: publishes nothing while replicas are waited for.

    Attributes:
        deploys: how many there have been.
    """

    def __init__(
        self, memory: Memory, recorder: Recorder, processes: Processes, registry: Registry
    ) -> None:
        self.deploys = 0
        self._memory = memory
        self._recorder = recorder
        self._processes = processes
        self._registry = registry
        self._hold = Hold()
        self._has_read = False

    def resume(self, runs: Runs, now: float) -> None:
        """Read the store, and find the replicas that live; before anybody can join.

        Raises:
            MeshError: the store cannot be read, or holds nothing though replicas of a mesh live.
        """
        records = self._recorder.load()
        if not records and (strays := self._processes.count_strays()):
            raise MeshError(
                f"the state of the mesh is empty, but replicas of it run ({strays}), and go on; "
                "put back the files of its state into PYSERVE_HOME, or end the replicas, and "
                "start it again"
            )
        self._has_read = True
        restored = restore(records, now=now, clock_offset=self._recorder.clock_offset)
        self.deploys = restored.deploys
        memory = self._memory
        memory.state.deployments.update(restored.state.deployments)
        memory.state.replicas.update(restored.state.replicas)
        memory.state.conditions.update(restored.state.conditions)
        memory.state.cordoned_nodes.update(restored.state.cordoned_nodes)
        memory.applications.infos.update(restored.applications.infos)
        memory.reconfiguring.former.update(restored.reconfiguring.former)
        memory.specs.update(restored.specs)
        self._hold.begin(restored, now)
        self.look(now)
        for replica in list(memory.state.replicas.values()):
            spec, memo = memory.specs[replica.version], restored.memos[replica.id]
            self._processes.adopt(replica, spec, memo)
        self._processes.end_strays()
        for info in memory.applications.infos.values():
            for run in (info.run, info.previous.run if info.previous is not None else None):
                if run is not None:
                    runs.expect(run)
        if memory.applications.infos:
            _LOGGER.info(
                "the mesh goes on with %d applications and %d replicas that live",
                len(memory.applications.infos),
                len(memory.state.replicas),
            )
        # Taken from the clock, so that no version of an earlier controller is ever used again.
        self._registry.begin(round((now + self._recorder.clock_offset) * 1000), held=True)

    def admit(self, specs: Specs, deploys: int) -> None:
        """Store what deploys bring; ``MeshError`` if that fails, and nothing has changed."""
        self._recorder.admit(specs)
        self.deploys += deploys

    def look(self, now: float) -> None:
        """Check which replicas are back."""
        self._hold.look(self._memory.state, now)

    def allowed(self, actions: Sequence[Action]) -> list[Action]:
        """Return the actions that are allowed while replicas are waited for."""
        return self._hold.allowed(actions, self._memory.state)

    def record(self, now: float) -> None:
        """Write the changes; after that views may be published, once all replicas are back."""
        drop_unused(self._memory.state, self._memory.specs)
        self._recorder.record(self._memory, deploys=self.deploys, now=now)
        if self._registry.held and not self._hold.awaited:
            self._registry.release()

    def next_wakeups(self) -> tuple[float | None, ...]:
        """Return when there is something to do without an event."""
        return (self._hold.next_wakeup(), self._recorder.next_wakeup())

    def notices(self) -> tuple[str, ...]:
        """Return notices for users."""
        return self._recorder.notices()

    def keep_applications(self) -> None:
        """Let the applications come back after this end of the mesh."""
        self._recorder.keeps_applications = True

    def close(self, now: float) -> None:
        """Write the last change, and close the store."""
        # Before the store has been read the memory is empty, and must not replace it.
        if self._has_read:
            self._recorder.record(self._memory, deploys=self.deploys, now=now)
        self._recorder.close()
