"""Identifiers and addresses that cross module borders, so that no bare string does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NewType

ApplicationName = NewType("ApplicationName", str)
DeploymentName = NewType("DeploymentName", str)
ServiceName = NewType("ServiceName", str)
"""Full name of a gRPC service, ``pkg.Service``."""

MODEL_ATTRIBUTE = "__pyserve_model__"
"""The mark of ``pyserve.inference.model`` on a class; here, so that reading it needs no numpy."""
START_ATTRIBUTE = "__pyserve_start__"
"""The mark of a class with a hook that runs before ``warmup``: the name of its method."""


class ReplicaId(str):
    """The name of a replica, ``Echo#k3f2x``: unique in its mesh for as long as it runs."""

    __slots__ = ()

    @property
    def unique_id(self) -> str:
        """The part that distinguishes it from the other replicas of its deployment."""
        return self.rpartition("#")[2]


@dataclass(frozen=True, slots=True)
class ReplicaRank:
    """The number of a replica among those of its version: from 0, without gaps.

    A replacement gets the number of the replica whose place it takes, so while one drains, or two
    versions serve, a number may be there twice.

    Attributes:
        rank: Among all replicas.
        node_rank: Of its node, among the nodes that they run on.
        local_rank: Among those on its node.
    """

    rank: int
    node_rank: int
    local_rank: int


FIRST_RANK = ReplicaRank(0, 0, 0)
"""Of the only replica."""


@dataclass(frozen=True, slots=True)
class DeploymentKey:
    """A deployment's place in a mesh: names are unique within their application."""

    application: ApplicationName
    deployment: DeploymentName

    def __str__(self) -> str:
        return f"{self.application}/{self.deployment}"


@dataclass(frozen=True, kw_only=True)
class MeshAddress:
    """Where a controller listens, and what proves membership to it.

    Attributes:
        controller: ``unix:path`` or ``host:port``, as channels take it.
        token: the mesh token.
        named_by: the variable or option that names the controller, for people; "": it was found.
    """

    controller: str
    token: bytes
    named_by: str = field(default="", compare=False)
