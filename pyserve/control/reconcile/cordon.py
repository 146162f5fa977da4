"""Takes replicas out of rotation and back without stopping them. Pure.

A cordoned replica is not in any view, so it gets no new calls; it keeps its slot and its calls in
flight. On a cordoned node all replicas are cordoned, including those that join later.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyserve.control.state.mesh import MeshState, Phase, Replica
from pyserve.errors import MeshNotFound, UsageError
from pyserve.types import ReplicaId

NODE_PREFIX = "node:"


@dataclass(frozen=True, slots=True)
class Cordoned:
    """The result of a cordon or an uncordon.

    Attributes:
        replicas: those that it has changed.
        warnings: what the user should know, a line each.
    """

    replicas: tuple[ReplicaId, ...]
    warnings: tuple[str, ...] = ()


def cordon(state: MeshState, target: str, *, undo: bool) -> Cordoned:
    """Take a replica, or those of a node, out of rotation; ``undo`` takes them back.

    Args:
        state: of the mesh.
        target: the id of a replica, or ``node:NAME``.
        undo: whether it is the end of a cordon.

    Raises:
        UsageError: the replica ends already, or is cordoned with its node.
        MeshNotFound: there is no replica, or no node, of that name.
    """
    if target.startswith(NODE_PREFIX):
        changed = _cordon_node(state, target.removeprefix(NODE_PREFIX), undo=undo)
    else:
        changed = _cordon_replica(state, target, undo=undo)
    for replica in changed:
        state.on_cordoned(replica.id)
    return Cordoned(
        tuple(replica.id for replica in changed), () if undo else _warnings(state, changed)
    )


def cordon_notices(state: MeshState) -> list[str]:
    """Return notices about cordoned nodes, a line each."""
    return [
        f"node {name} is cordoned: its replicas, and those that join there, get no new calls"
        for name in sorted(state.cordoned_nodes)
    ]


def _cordon_replica(state: MeshState, name: str, *, undo: bool) -> list[Replica]:
    replica = state.replicas.get(ReplicaId(name))
    if replica is None:
        known = ", ".join(sorted(state.replicas)) or "none"
        raise MeshNotFound(
            f"there is no replica {name!r}; there is: {known}; a node is written {NODE_PREFIX}NAME"
        )
    if replica.phase is Phase.STOPPING:
        raise UsageError(f"replica {name} ends already, and gets no calls")
    if undo and replica.node_cordoned:
        node = f"{NODE_PREFIX}{replica.place.node}"
        raise UsageError(f"replica {name} is out of rotation with {node}; uncordon {node}")
    is_new = replica.cordoned == undo
    replica.cordoned = not undo
    return [replica] if is_new else []


def _cordon_node(state: MeshState, name: str, *, undo: bool) -> list[Replica]:
    known = {item.place.node for item in state.replicas.values()} | state.cordoned_nodes
    if name not in known or not name:
        there = ", ".join(f"{NODE_PREFIX}{each}" for each in sorted(known - {""})) or "none"
        raise MeshNotFound(f"there is no node {name!r} with a replica; there is: {there}")
    if undo:
        state.cordoned_nodes.discard(name)
    else:
        state.cordoned_nodes.add(name)
    changed = []
    for replica in state.replicas.values():
        if replica.place.node == name and replica.node_cordoned == undo:
            replica.node_cordoned = not undo
            if not replica.cordoned and replica.phase is not Phase.STOPPING:
                changed.append(replica)
    return changed


def _warnings(state: MeshState, changed: list[Replica]) -> tuple[str, ...]:
    return tuple(
        f"{key} has no replica in rotation now, and its calls wait until one is back"
        for key in dict.fromkeys(replica.key for replica in changed)
        if not any(each.in_rotation for each in state.of_deployment(key))
    )
