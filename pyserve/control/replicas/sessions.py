"""The controller's end of each replica's Join stream, and signs of life asked for over it.

A process that hangs is found and replaced. Routers notice sooner, by the connections that they use;
this is for the mesh's status, and for replicas without calls. ``LivenessMonitor`` is pure;
``watch_liveness`` drives it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyserve.config.control import LIVENESS_CHECK_PERIOD_S, PING_PERIOD_S, SILENT_AFTER_S
from pyserve.control.state.mesh import MeshState, Replica
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2

# A replica gets a handful of commands in its life; one that leaves this many unread is stuck.
_COMMANDS_MAX = 64


@dataclass(eq=False)
class Session:
    """Commands on their way to one replica."""

    replica_id: ReplicaId
    _commands: asyncio.Queue[mesh_pb2.ReplicaCommand | None] = field(
        default_factory=lambda: asyncio.Queue(_COMMANDS_MAX)
    )

    def send(self, command: mesh_pb2.ReplicaCommand) -> None:
        """Queue a command; a replica that has stopped reading loses its stream."""
        try:
            self._commands.put_nowait(command)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        """End the stream after what is queued, or at once when the queue is full."""
        while self._commands.full():
            self._commands.get_nowait()
        self._commands.put_nowait(None)

    async def next(self) -> mesh_pb2.ReplicaCommand | None:
        """Return the next command, ``None`` to end the stream."""
        return await self._commands.get()


# What is asked within one look, and of that without a pause: a millisecond of work each. Arbitrary.
_TOGETHER_MAX = 64
_GROUP = 16


class LivenessMonitor:
    """Decides which replicas to ask, and finds those that do not answer.

    A replica has one pending question at a time: a process that is stopped for an hour finds only
    one. A few replicas are asked together, so that an idle mesh rarely wakes; thousands take turns.
    """

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._asks_at = 0.0
        # Those of the round of questions that goes on, who have not had theirs.
        self._left: deque[ReplicaId] = deque()
        self._asks_max = 0

    def look(self, state: MeshState, now: float) -> Iterator[Replica]:
        """Yield the replicas to ask now; to be called once in ``LIVENESS_CHECK_PERIOD_S``."""
        was_late = (
            self._looked_at is not None and now - self._looked_at > 3 * LIVENESS_CHECK_PERIOD_S
        )
        self._looked_at = now
        if now >= self._asks_at:
            self._asks_at = now + PING_PERIOD_S
            self._left = deque(state.replicas)
            share = len(self._left) * LIVENESS_CHECK_PERIOD_S / PING_PERIOD_S
            self._asks_max = max(math.ceil(share), _TOGETHER_MAX)
        turns = range(min(self._asks_max, len(self._left)))
        asked = {self._left.popleft() for _ in turns}
        for replica in state.replicas.values():
            if not replica.serves:
                continue
            if was_late:
                # This process did not run itself, and has their answers still to read.
                replica.asked_at = None
            if replica.asked_at is None:
                if replica.id in asked:
                    replica.asked_at = now
                    yield replica
            else:
                owed_s = now - replica.asked_at
                if owed_s >= SILENT_AFTER_S:
                    state.on_silent(replica.id)
                if owed_s >= replica.silence_limit_s:
                    state.on_hang(replica.id)


async def watch_liveness(
    state: MeshState, sessions: Mapping[ReplicaId, Session], on_change: Callable[[], None]
) -> None:
    """Ask and check for answers until cancelled; call ``on_change`` after changes."""
    liveness, loop = LivenessMonitor(), asyncio.get_running_loop()
    while True:
        asked = list(liveness.look(state, loop.time()))
        if state.incidents or any(each.serves and each.hangs for each in state.replicas.values()):
            on_change()
        # Their answers do not come all at once then, between what is more urgent.
        groups = [asked[at : at + _GROUP] for at in range(0, len(asked), _GROUP)]
        for group in groups or [[]]:
            for replica in group:
                if replica.id in sessions:
                    sessions[replica.id].send(mesh_pb2.ReplicaCommand(ping=mesh_pb2.Ping()))
            await asyncio.sleep(LIVENESS_CHECK_PERIOD_S / max(len(groups), 1))
