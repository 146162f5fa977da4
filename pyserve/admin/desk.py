"""What the routes of an admin server ask: the rest of its process, behind a few callables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pyserve.admin.gathering import NodeGathering
from pyserve.wire.v1 import control_pb2


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What is behind the routes.

    Attributes:
        gathering: What the processes of this node have counted.
        status: Returns the state of the mesh; ``None``: this process knows of itself only.
        speaks_tls: Admin servers of the mesh that are not on loopback speak TLS.
    """

    gathering: NodeGathering
    status: Callable[[], Awaitable[control_pb2.StatusReply]] | None = None
    speaks_tls: bool = False
