"""The processes of replicas: begun, found again, and what follows from their end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from pyserve.control.replicas.launching import LastingLauncher, Launcher, OnExit, order_of
from pyserve.control.state.mesh import MeshState, Replica
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)


class Processes:
    """Between a launcher and the state.

    Args:
        launcher: starts and kills them.
        state: gets what becomes of them.
        now: returns the time on the clock of the state's times.
        on_change: called after each change of the state.
        on_end: called with a replica whose process has ended, and how, before the state knows.

    Attributes:
        memos: what the next launcher finds them by.
    """

    def __init__(
        self,
        launcher: Launcher,
        state: MeshState,
        now: Callable[[], float],
        on_change: Callable[[], None],
        on_end: Callable[[Replica, str], None] = lambda *_: None,
    ) -> None:
        self.memos: dict[ReplicaId, str] = {}
        self._launcher = launcher
        self._state = state
        self._now = now
        self._on_change = on_change
        self._on_end = on_end

    async def launch(self, replica: Replica, spec: mesh_pb2.DeploymentSpec) -> None:
        """Start the process of a replica; an attempt that fails is its end."""
        on_exit = self._on_exit(replica)
        try:
            pid = await self._launcher.start(order_of(replica, spec), on_exit)
        except Exception as error:
            # Whatever kept it from starting: an attempt that fails, not one that hangs.
            is_ours = not isinstance(error, OSError)
            _LOGGER.error("replica %s cannot be started: %s", replica.id, error, exc_info=is_ours)
            on_exit(f"cannot be started: {error}")
        else:
            self._state.on_launched(replica.id, pid=pid)
            if isinstance(self._launcher, LastingLauncher) and replica.id in self._state.replicas:
                self.memos[replica.id] = self._launcher.memo(replica.id)
                self._on_change()
        if replica.killed:
            # The decision fell while the process was being made.
            self._launcher.kill(replica.id)

    def adopt(self, replica: Replica, spec: mesh_pb2.DeploymentSpec, memo: str) -> None:
        """Find the process of a replica that a controller before has started, or its end."""
        on_exit, launcher = self._on_exit(replica), self._launcher
        if isinstance(launcher, LastingLauncher) and (
            pid := launcher.adopt(order_of(replica, spec), memo, on_exit)
        ):
            self._state.on_launched(replica.id, pid=pid)
            self.memos[replica.id] = memo or launcher.memo(replica.id)
        elif memo:
            on_exit("ended with no controller to watch it")
        else:
            # It was wanted, and never begun: as if nobody had.
            del self._state.replicas[replica.id]

    def end_strays(self) -> None:
        """End what a controller before has started and could not record."""
        if isinstance(self._launcher, LastingLauncher):
            self._launcher.end_strays()

    def _on_exit(self, replica: Replica) -> OnExit:
        def on_exit(summary: str) -> None:
            self.memos.pop(replica.id, None)
            if replica.place.unix_path:
                # One that was killed could not remove its own socket; one that stays harms nobody.
                with contextlib.suppress(OSError):
                    Path(replica.place.unix_path).unlink()
            self._on_end(replica, summary)
            self._state.on_exited(replica.id, summary=summary, now=self._now())
            self._on_change()

        return on_exit
