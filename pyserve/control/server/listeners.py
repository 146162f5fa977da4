"""The controller's listeners: a Unix socket, and a TCP port if needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pyserve.aio.certificates import MeshTls
from pyserve.config import host_port
from pyserve.control.server.transport import LOOPBACK_PLACE, Server, TcpPlace, listen_tcp

# The streams of a replaced socket go on until they end by themselves: a year is for ever.
_REPLACED_GRACE_S = 365.0 * 24 * 3600


class UnixListener:
    """The controller's Unix socket.

    A socket whose path is gone cannot get it back, so another server is started behind the same
    path, and the one before ends with its last stream.

    Args:
        path: where it is.
        make_server: makes a server with the controller's services, not started yet.
    """

    def __init__(self, path: Path, make_server: Callable[[], Server]) -> None:
        self.path = path
        self._make_server = make_server
        self._server: Server | None = None
        self._replaced: dict[asyncio.Task[None], Server] = {}
        self._count = 0

    async def open(self) -> None:
        """Listen at the path, in place of whatever is there.

        Raises:
            OSError, RuntimeError: that is not possible.
        """
        self._count += 1
        # Servers remove the path that they have bound when they end, which must not be the one
        # that their successor has.
        fresh = self.path.with_name(f"controller-{self._count}.sock")
        server = self._make_server()
        server.add_insecure_port(f"unix:{fresh}")
        await server.start()
        former, self._server = self._server, server
        if former is not None:
            ending = asyncio.create_task(former.stop(_REPLACED_GRACE_S))
            self._replaced[ending] = former
            ending.add_done_callback(self._replaced.pop)
        fresh.rename(self.path)

    async def close(self, grace_s: float) -> None:
        """End this server and those before it."""
        servers = [*self._replaced.values(), *([self._server] if self._server else [])]
        await asyncio.gather(*(server.stop(grace_s) for server in servers))
        await asyncio.gather(*self._replaced)


class TcpListener:
    """The controller's TCP port: for other machines, or if the Unix socket is not possible.

    Args:
        place: where; ``None``: everything is on this machine.
        make_server: makes a server with the controller's services, not started yet.
        tls: certificates between processes; ``None``: plain.

    Attributes:
        address: what is dialled; "" until it is open.
    """

    def __init__(
        self, place: TcpPlace | None, make_server: Callable[[], Server], tls: MeshTls | None
    ) -> None:
        self.address = ""
        self._place = place or LOOPBACK_PLACE
        self._make_server = make_server
        self._tls = tls
        self._server: Server | None = None

    async def open(self) -> None:
        """Listen, unless it does already.

        Raises:
            OSError, RuntimeError: that is not possible.
        """
        if self._server is not None:
            return
        server = self._make_server()
        port = listen_tcp(server, self._place.bind, self._tls)
        await server.start()
        self._server = server
        self.address = host_port(self._place.advertised_host, port)

    async def close(self, grace_s: float) -> None:
        """End the server."""
        if self._server is not None:
            await self._server.stop(grace_s)
