"""The processes of replicas: starts them, finds them again, and handles their ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyserve.config.control import KILL_MARGIN_S
from pyserve.control.replicas.launching import (
    CountsStrays,
    Ended,
    Event,
    LastingLauncher,
    Launcher,
    Placed,
    order_of,
)
from pyserve.control.state.mesh import MeshState, Replica
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2

_LOGGER = logging.getLogger(__name__)
# After a watch that failed; and for one that does not end though its launcher is closed. Arbitrary.
_WATCH_AGAIN_S = 1.0
_LAST_EVENTS_TIMEOUT_S = 5.0


class Processes:
    """Between a launcher and the state. Made in a running loop, where it watches from then on.

    Args:
        launcher: starts and ends them.
        state: gets their events.
        now: returns the time on the clock of the state's times.
        on_change: called after each change of the state.
        on_end: called with a replica whose process has ended, and how, before the state knows.

    Attributes:
        memos: how the next launcher finds them.
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
        self._is_closed = False
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def launch(self, replica: Replica, spec: mesh_pb2.DeploymentSpec) -> None:
        """Start the process of a replica; an attempt that fails is its end."""
        if self._is_closed:
            # It would take the place of one that has ended just now, with all the others.
            return
        try:
            pid = await self._launcher.start(order_of(replica, spec))
        except Exception as error:
            # Whatever the error: the attempt has failed, and must not appear to hang.
            is_ours = not isinstance(error, OSError)
            _LOGGER.error("replica %s cannot be started: %s", replica.id, error, exc_info=is_ours)
            self._ended(replica, f"cannot be started: {error}")
        else:
            self._state.on_launched(replica.id, pid=pid)
            if isinstance(self._launcher, LastingLauncher) and replica.id in self._state.replicas:
                self.memos[replica.id] = self._launcher.memo(replica.id)
                self._on_change()
        if replica.killed:
            # The decision fell while the process was being made.
            self._launcher.stop(replica.id, 0)

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """Signal a replica to end within its grace, which its last hooks may need to the end.

        A constructor that holds the loop hears of it by a signal only.
        """
        self._launcher.stop(replica_id, grace_s + KILL_MARGIN_S)

    def adopt(self, replica: Replica, spec: mesh_pb2.DeploymentSpec, memo: str) -> None:
        """Find the process of a replica that an earlier controller has started, or its end."""
        launcher, pid = self._launcher, None
        if isinstance(launcher, LastingLauncher):
            pid = launcher.adopt(order_of(replica, spec), memo)
            if pid is not None:
                self._state.on_launched(replica.id, pid=pid)
                self.memos[replica.id] = memo or launcher.memo(replica.id)
        if pid is None and memo:
            self._ended(replica, "ended with no controller to watch it")
        elif pid is None:
            # It was wanted, but never begun: as if it had not been wanted.
            del self._state.replicas[replica.id]

    def count_strays(self) -> int:
        """Return how many replicas of an earlier controller run without having been adopted."""
        launcher = self._launcher
        return launcher.count_strays() if isinstance(launcher, CountsStrays) else 0

    def end_strays(self) -> None:
        """Drain the replicas that an earlier controller has started and could not record."""
        if isinstance(self._launcher, LastingLauncher):
            self._launcher.end_strays()

    async def close(self) -> None:
        """Kill what is left, and take in its end; nothing is started any more."""
        self._is_closed = True
        await self._launcher.close()
        done, _ = await asyncio.wait([self._watching], timeout=_LAST_EVENTS_TIMEOUT_S)
        if not done:
            self._watching.cancel()
            _LOGGER.error("the watch of launcher %s does not end", self._launcher.name)

    async def _watch(self) -> None:
        while True:
            try:
                async for event in self._launcher.watch():
                    self._on_event(event)
                return
            except Exception:
                # What happens meanwhile is kept for the next one.
                _LOGGER.exception("the watch of launcher %s has failed", self._launcher.name)
                await asyncio.sleep(_WATCH_AGAIN_S)

    def _on_event(self, event: Event) -> None:
        replica = self._state.replicas.get(event.replica_id)
        if replica is None:  # Its start had failed, or it is unknown here.
            return
        if isinstance(event, Ended):
            self._ended(replica, event.summary)
        elif isinstance(event, Placed):
            replica.place = replace(replica.place, zone=replica.place.zone or event.zone)
            self._on_change()
        else:
            self._state.on_waiting(replica.id, event.why)
            self._on_change()

    def _ended(self, replica: Replica, summary: str) -> None:
        self.memos.pop(replica.id, None)
        if replica.place.unix_path:
            # One that was killed could not remove its own socket; one that stays does no harm.
            with contextlib.suppress(OSError):
                Path(replica.place.unix_path).unlink()
        self._on_end(replica, summary)
        self._state.on_exited(replica.id, summary=summary, now=self._now())
        self._on_change()
