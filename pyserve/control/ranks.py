"""The numbers of replicas. Pure.

Those that the controller starts fill the slots 0 ... n-1 of their version, and run on one node;
others, which somebody else started, are numbered behind them as they come.
"""

from __future__ import annotations

from collections.abc import Collection

from pyserve.control.state import EXTERNAL_SLOT, MeshState, Replica
from pyserve.types import ReplicaRank


def give_rank(state: MeshState, replica: Replica) -> ReplicaRank:
    """Return the number of a replica that has said where it runs; the same one every time."""
    if replica.rank is None:
        if replica.slot == EXTERNAL_SLOT:
            replica.rank = _external_rank(state, replica)
        else:
            replica.rank = ReplicaRank(replica.slot, 0, replica.slot)
    return replica.rank


def world_size(state: MeshState, replica: Replica) -> int:
    """Return how many replicas its version shall have, those that others started included."""
    others = sum(each.slot == EXTERNAL_SLOT for each in _of_version(state, replica))
    return _own(state, replica) + others


def _external_rank(state: MeshState, replica: Replica) -> ReplicaRank:
    own, node = _own(state, replica), replica.place.node
    there = [
        (each.place.node, each.rank)
        for each in _of_version(state, replica)
        if each.rank is not None
    ]
    near = [rank for name, rank in there if name == node]
    is_own_node = any(rank.node_rank == 0 for rank in near) and own > 0
    return ReplicaRank(
        rank=_free(own, {rank.rank for _, rank in there}),
        node_rank=near[0].node_rank
        if near
        else _free(min(own, 1), {rank.node_rank for _, rank in there}),
        local_rank=_free(own if is_own_node else 0, {rank.local_rank for rank in near}),
    )


def _own(state: MeshState, replica: Replica) -> int:
    version = state.version_of(replica.key, replica.version)
    return replica.options.initial_num_replicas if version is None else version.num_replicas


def _of_version(state: MeshState, replica: Replica) -> list[Replica]:
    return [each for each in state.of_deployment(replica.key) if each.version == replica.version]


def _free(first: int, taken: Collection[int]) -> int:
    while first in taken:
        first += 1
    return first
