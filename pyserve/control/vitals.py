"""Asks the replicas that run for signs of life: one that hangs as a whole is noticed and replaced.

Routers notice sooner, by the connections that they use; this is for those who look at the mesh,
and for replicas that nobody calls. ``Vitals`` is pure; ``watch_vitals`` drives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from pyserve.config.control import PING_PERIOD_S, SILENT_AFTER_S, VITALS_LOOK_PERIOD_S
from pyserve.control.sessions import Session
from pyserve.control.state import MeshState, Replica
from pyserve.types import ReplicaId
from pyserve.wire.v1 import mesh_pb2


class Vitals:
    """Who is to be asked, and who does not answer.

    One question is under way at a time: a process that is stopped for an hour finds one.
    """

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._asks_at = 0.0

    def look(self, state: MeshState, now: float) -> Iterator[Replica]:
        """Yield the replicas to ask now; to be called once in ``VITALS_LOOK_PERIOD_S``."""
        was_late = self._looked_at is not None and now - self._looked_at > 3 * VITALS_LOOK_PERIOD_S
        self._looked_at = now
        asks = now >= self._asks_at
        if asks:
            self._asks_at = now + PING_PERIOD_S
        for replica in state.replicas.values():
            if not replica.serves:
                continue
            if was_late:
                # This process did not run itself, and has their answers still to read.
                replica.asked_at = None
            if replica.asked_at is None:
                if asks:
                    replica.asked_at = now
                    yield replica
            else:
                owed_s = now - replica.asked_at
                if owed_s >= SILENT_AFTER_S:
                    state.on_silent(replica.id)
                if owed_s >= replica.silence_limit_s:
                    state.on_hang(replica.id)


async def watch_vitals(
    state: MeshState, sessions: Mapping[ReplicaId, Session], on_change: Callable[[], None]
) -> None:
    """Ask and look for answers until cancelled; call ``on_change`` when there is news."""
    vitals, loop = Vitals(), asyncio.get_running_loop()
    while True:
        for replica in vitals.look(state, loop.time()):
            if replica.id in sessions:
                sessions[replica.id].send(mesh_pb2.ReplicaCommand(ping=mesh_pb2.Ping()))
        if state.incidents or any(each.serves and each.hangs for each in state.replicas.values()):
            on_change()
        await asyncio.sleep(VITALS_LOOK_PERIOD_S)
