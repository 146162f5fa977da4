"""A launcher that starts nothing: what all those of tests have in common."""

from __future__ import annotations

from pyserve.config.capabilities import OF_LAUNCHERS, Capabilities
from pyserve.launch import Ended, Event, Events, Launcher, ReplicaOrder, Room
from pyserve.types import ReplicaId


class ScriptedLauncher:
    """Ends replicas when a test says so, and can do all that a deployment may ask for."""

    name = "scripted"
    capabilities = Capabilities(acts_on=OF_LAUNCHERS)

    def __init__(self) -> None:
        self.room_left = Room(100, "")
        self.events = Events()

    async def open(self) -> None: ...

    async def start(self, order: ReplicaOrder) -> int:
        """Take an order; nobody carries it out."""
        return 0

    def end(self, replica_id: ReplicaId, summary: str) -> None:
        """Let a replica have ended."""
        self.events.put(Ended(replica_id, summary))

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """Let one that is killed have ended at once; others finish what they have."""
        if not grace_s:
            self.end(replica_id, "was killed by SIGKILL")

    def room(self) -> Room:
        return self.room_left

    def watch(self) -> Events:
        return self.events

    async def close(self) -> None:
        self.events.close()


async def next_event(launcher: Launcher) -> Event:
    """Return what a launcher that nobody else watches tells next."""
    return await anext(launcher.watch())


async def next_end(launcher: Launcher) -> str:
    """Return how the next replica has ended, which has to be what is told next."""
    event = await next_event(launcher)
    assert isinstance(event, Ended), event
    return event.summary
