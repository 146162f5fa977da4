"""The controller's connection to the agent: its process, and messages from it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import Self

from pyserve.config import inherited_environment
from pyserve.errors import MeshError
from pyserve.launch.on_ray.messages import Connected, Message, Refused, receive, send

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
