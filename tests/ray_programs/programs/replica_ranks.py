"""Replica ranks: which shard a replica has, also when ``reconfigure`` is called."""

from typing import Any

import pyserve as serve
from pyserve.schema import ReplicaRank


@serve.deployment(num_replicas=2, user_config={"name": "model_v1"})
class Shard:
    def __init__(self) -> None:
        context = serve.get_replica_context()
        self.at_start = context.rank.rank, context.world_size
        self.rank = -1
        self.name = ""

    async def reconfigure(self, user_config: Any, rank: ReplicaRank) -> None:
        self.rank = rank.rank
        self.name = user_config["name"]

    def __call__(self) -> tuple[tuple[int, int], int, str]:
        return self.at_start, self.rank, self.name


app = Shard.bind()
renamed = Shard.options(user_config={"name": "model_v2"}).bind()
