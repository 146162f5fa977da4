"""The messages between the launcher and its agent, the process connected with the cluster.

The agent also sends launcher events unchanged, including those of ingresses. Messages are framed
pickles over a socket pair that no other process has.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyserve.control.replicas.launching import Ended, Waiting
from pyserve.launch.on_ray.resource_request import Node, ResourceRequest
from pyserve.types import ReplicaId

# Of messages that the other side has not read; thousands of replicas make a few megabytes.
UNREAD_BYTES_MAX = 64 << 20
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStart:
    """The inputs of a replica's start.

    Attributes:
        arguments: of ``python -m pyserve.replica``.
        token: of the mesh.
        environment: changes to the actor's own.
        working_directory: where it runs; the actor's own if the node has no such folder.
        names: of nodes that the mesh and Ray call differently, by Ray's ids.
    """

    arguments: Sequence[str]
    token: bytes
    environment: Mapping[str, str]
    working_directory: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


# --- to the agent ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Run a replica in an actor, and report its events.

    Attributes:
        replica_id: the name of the actor.
        is_new: make the actor; otherwise it is there.
        is_detached: it outlives the agent.
        ingress_of: the actor is an ingress of the node with this Ray id; "": it is a replica.
        packs: place it where others are, so that few nodes are used.
    """

    replica_id: ReplicaId
    requested: ResourceRequest
    beginning: ReplicaStart
    is_new: bool = True
    is_detached: bool = False
    ingress_of: str = ""
    packs: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Have a replica end; see ``Launcher.stop``."""

    replica_id: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class EndStrays:
    """End every actor of the mesh that is not followed.

    Attributes:
        but_ingresses: those are about to be followed.
    """

    but_ingresses: bool = False


# --- from the agent -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The cluster is there.

    Attributes:
        own_node: Ray's id of the node that the agent is on.
        address: where others connect with the cluster.
        actors: the names of those of the mesh.
    """

    nodes: Sequence[Node]
    own_node: str
    address: str
    actors: Sequence[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """The cluster was not found, or it cannot be used.

    Attributes:
        why: for people, with what to do.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Followed:
    """The actor of a replica has been asked for.

    Attributes:
        error: why Ray refuses it; "": it does not.
    """

    replica_id: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class OutputLines:
    """A replica has written these lines."""

    replica_id: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Ray's ids of the nodes that live, after each change."""

    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Lost:
    """The cluster is gone, and the agent ends.

    Attributes:
        why: as it follows "the Ray cluster at …".
    """

    why: str


Message = (
    Follow
    | Stop
    | EndStrays
    | Connected
    | Refused
    | Followed
    | OutputLines
    | Waiting
    | Ended
    | Nodes
    | Lost
)


def send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Send a message; it waits in memory while the other side does not read.

    If the other side has not read for long, the connection is dropped, which each side takes as the
    end of the other.
    """
    if writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
        writer.transport.abort()
        return
    body = pickle.dumps(message)
    writer.write(_LENGTH.pack(len(body)) + body)


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; ``None``: the other side has ended."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        message: Message = pickle.loads(await reader.readexactly(length))  # noqa: S301  # our own
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message
