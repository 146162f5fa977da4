"""A request router of one's own: the replica that says that it is the freest comes first."""

from typing import Any

import pyserve as serve
from pyserve.config import RequestRouterConfig
from pyserve.request_router import (
    FIFOMixin,
    PendingRequest,
    ReplicaID,
    ReplicaResult,
    RequestRouter,
    RunningReplica,
)


class FreestRouter(FIFOMixin, RequestRouter):
    def initialize_state(self, key: str) -> None:
        self.key = key
        self.routed: list[ReplicaID] = []

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        return [sorted(candidate_replicas, key=lambda each: -each.routing_stats.get(self.key, 0))]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult
    ) -> None:
        self.routed.append(replica_id)


@serve.deployment(
    num_replicas=2,
    request_router_config=RequestRouterConfig(
        request_router_class="tests.ray_programs.programs.request_routers:FreestRouter",
        request_router_kwargs={"key": "free"},
        request_routing_stats_period_s=0.1,
        request_routing_stats_timeout_s=1,
    ),
)
class Worker:
    def __init__(self) -> None:
        self.rank = serve.get_replica_context().rank.rank

    def record_routing_stats(self) -> dict[str, Any]:
        return {"free": 10 * self.rank}

    def __call__(self) -> int:
        return self.rank


app = Worker.bind()
