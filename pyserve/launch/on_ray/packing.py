"""Chooses nodes of a Ray cluster for replicas so that few nodes are used. Pure.

Best fit: a node in use before an idle one, and among those the node with the least left (Johnson
1974, "Fast algorithms for bin packing"; Ray Serve's PACK strategy does the same). So nodes fill up
one after the other, the last that were used become idle first, and a cluster that removes idle
nodes can do so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyserve.launch.on_ray.resource_request import Node, ResourceRequest

Amounts = Mapping[str, float]
# A node has other work on it if it has less of these than it could have.
_COUNTED = ("CPU", "GPU")
# Ray counts in ten-thousandths; sums of floats miss by less.
_UNIT = 1e-4


class Packing:
    """Where replicas have been placed; the cluster shows their resources only some time later."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, Amounts]] = {}

    def place(
        self,
        replica_id: str,
        requested: ResourceRequest,
        nodes: Sequence[Node],
        free: Mapping[str, Amounts],
    ) -> str:
        """Choose the node of a replica, and count it there.

        Args:
            replica_id: of the replica.
            requested: what it asks for.
            nodes: those that live.
            free: what the cluster says is left, by the ids of nodes.

        Returns:
            The id of the node; "": none has room, or its labels or its bundles say where it lies.
        """
        if requested.bundles or requested.actor.keys() & {"label_selector", "fallback_strategy"}:
            return ""
        amounts = {**requested.amounts, **requested.share}
        best: tuple[bool, float, str] | None = None
        for node in nodes:
            # Of a share every node has one, which the cluster does not tell.
            whole = {**dict.fromkeys(_COUNTED, 0.0), **node.resources, **_ones(requested.share)}
            said = {**free.get(node.id, {}), **_ones(requested.share)}
            taken = self._taken(node.id)
            # We know our own replicas at once; the cluster shows all of them some time later.
            left = {
                name: min(whole.get(name, 0.0) - taken[name], said.get(name, 0.0))
                for name in {*_COUNTED, *amounts}
            }
            if any(left[name] + _UNIT < amount for name, amount in amounts.items()):
                continue
            is_idle = all(left[name] + _UNIT >= whole[name] for name in left)
            after = min(
                ((left[name] - amount) / whole[name] for name, amount in amounts.items()),
                default=1.0,
            )
            best = min(best or (True, 2.0, ""), (is_idle, after, node.id))
        chosen = best[2] if best else ""
        if chosen:
            self._places[replica_id] = chosen, amounts
        return chosen

    def leave(self, replica_id: str) -> None:
        """Forget a replica. Idempotent."""
        self._places.pop(replica_id, None)

    def _taken(self, node: str) -> Counter[str]:
        taken: Counter[str] = Counter()
        for place, amounts in self._places.values():
            if place == node:
                taken.update(amounts)
        return taken


def _ones(names: Amounts) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)
