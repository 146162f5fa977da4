"""The messages between the launcher and its agent, the process connected with the cluster.

The agent also sends launcher events unchanged, including those of ingresses. Messages are framed
pickles over a socket pair that no other process has.

The launcher has a ``Link`` to its agent, which starts the process and receives its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from pyserve.config import inherited_environment
from pyserve.control.replicas.launching import Ended, Waiting
from pyserve.errors import MeshError
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


# How long the agent has to finish before it is killed.
_ENDED_WITHIN_S = 5.0
_ENDED_EARLY = "the process that connects with it has ended; the log of the mesh may say why"


class Link:
    """An agent that is connected with the cluster. It ends with this process.

    Attributes:
        connected: what it has found.
    """

    connected: Connected

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str, namespace: str, *, tells_nodes: bool) -> Self:
        """Start an agent, and wait until it is connected.

        Args:
            address: of the cluster.
            namespace: of the names of actors.
            tells_nodes: each change of the nodes is of interest.

        Raises:
            MeshError: It cannot be; the text says why.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                reader, writer = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "pyserve.launch.on_ray.agent"),
                    *("--descriptor", str(theirs.fileno())),
                    *("--address", address, "--namespace", namespace),
                    *(["--tell-nodes"] if tells_nodes else []),
                    env=inherited_environment({}),
                    pass_fds=[theirs.fileno()],
                    # Ctrl-C in a terminal reaches the driver, which then ends the mesh in order.
                    start_new_session=True,
                )
            except BaseException:
                writer.close()
                raise
        link = cls(process, reader, writer)
        try:
            first = await link.receive()
        except BaseException:
            await link.close()
            raise
        if isinstance(first, Connected):
            link.connected = first
            return link
        await link.close()
        raise MeshError(
            first.why
            if isinstance(first, Refused)
            else f"the Ray cluster at {address!r} cannot be used: {_ENDED_EARLY}"
        )

    def send(self, message: Message) -> None:
        """Send it a message; without effect when it has ended."""
        if not self._writer.is_closing():
            send(self._writer, message)

    async def receive(self) -> Message | None:
        """Return its next message; ``None``: it has ended."""
        return await receive(self._reader)

    def let_go(self) -> None:
        """Let it end; detached actors stay in the cluster."""
        self._writer.close()

    async def close(self) -> None:
        """Let it end, and wait for that; it is killed if the wait is cancelled or too long."""
        self.let_go()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENDED_WITHIN_S):
                    await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
