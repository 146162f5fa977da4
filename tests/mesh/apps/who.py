"""A deployment that tells which replica it is."""

from __future__ import annotations

import os
import signal

import pyserve


@pyserve.deployment
class Who:
    def __init__(self, size: int = 1) -> None:
        context = pyserve.get_replica_context()
        self.size = size
        self.at_start = (context.rank.rank, context.world_size)

    async def __call__(self) -> dict[str, object]:
        context = pyserve.get_replica_context()
        return {
            "replica_id": str(context.replica_id),
            "unique_id": context.replica_id.unique_id,
            "rank": (context.rank.rank, context.rank.node_rank, context.rank.local_rank),
            "world_size": context.world_size,
            "at_start": self.at_start,
            "is_me": context.servable_object is self,
            "pid": os.getpid(),
        }

    async def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


app = Who.bind()
