"""The controller's end of each replica's Join stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

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
