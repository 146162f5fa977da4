"""Base classes for request routers of users, under Ray Serve's names.

``request_router_config={"policy": "module:Class"}`` takes such a class, which need not have a base.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import TypeAlias

from pyserve.api.policy import Candidate, RoutedRequest
from pyserve.config import read_settings
from pyserve.types import ReplicaId

# As Ray Serve calls them.
RunningReplica = Candidate
PendingRequest = RoutedRequest
ReplicaID = ReplicaId
# Always ``None``: ``on_request_routed`` is called before the call has a result.
ReplicaResult: TypeAlias = None


class RequestRouter(ABC):
    """A base for routers: one instance in every process that sends calls to the deployment.

    ``initialize_state(**kwargs)`` of the subclass gets the ``request_router_kwargs``;
    ``on_request_routed`` and ``on_request_completed`` are called if it has them.
    """

    @abstractmethod
    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the replicas for a call, in ranks, the best ones first; may be a plain ``def``."""

    def select_available_replicas(
        self, candidates: Iterable[RunningReplica]
    ) -> list[RunningReplica]:
        """Return those that have room for a call of this process."""
        return [each for each in candidates if each.in_flight < each.capacity]


class FIFOMixin:
    """Says that calls leave in the order in which they came, which they always do."""


class LocalityMixin:
    """Orders replicas by where they are."""

    def rank_replicas_via_locality(
        self, replicas: Iterable[RunningReplica]
    ) -> list[list[RunningReplica]]:
        """Return three ranks: on this node, in this zone (not known here: empty), elsewhere."""
        near: list[RunningReplica] = []
        far: list[RunningReplica] = []
        for each in replicas:
            (near if each.node_id == self._node_id else far).append(each)
        return [near, [], far]

    @cached_property
    def _node_id(self) -> str:
        return read_settings().node.node_id


class MultiplexMixin:
    """Orders replicas by the models that they have."""

    def rank_replicas_via_multiplex(
        self, replicas: Iterable[RunningReplica], multiplexed_model_id: str
    ) -> list[list[RunningReplica]]:
        """Return three ranks: those with the model, those with the fewest models, the others."""
        found = list(replicas)
        having = [each for each in found if multiplexed_model_id in each.model_ids]
        others = [each for each in found if multiplexed_model_id not in each.model_ids]
        fewest = min((len(each.model_ids) for each in others), default=0)
        return [
            having,
            [each for each in others if len(each.model_ids) == fewest],
            [each for each in others if len(each.model_ids) > fewest],
        ]


__all__ = [
    "FIFOMixin",
    "LocalityMixin",
    "MultiplexMixin",
    "PendingRequest",
    "ReplicaID",
    "ReplicaResult",
    "RequestRouter",
    "RunningReplica",
]
